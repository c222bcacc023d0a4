// Keys of ours that follow from several of other tools'. Each function acts where the layer says one of its
// parts.
#pragma once

#include "recipe/layer.h"

namespace plimsoll {

// All of them, in an order in which each finds what it asks.
void combine(Layer& layer);

// The data sets (combine_data.cc).
void combine_data(Layer& layer);

// The method of a tool's recipe that says none.
void fill_tool_method(Layer& layer);
// What a tool does where its recipe says nothing, and we would do something else.
void fill_tool_defaults(Layer& layer);

}  // namespace plimsoll
