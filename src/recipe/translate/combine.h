// Keys of ours that follow from several of other tools'. Each function acts where the layer has one of its
// parts.
#pragma once

#include "recipe/translate/layer.h"

namespace plimsoll {

// Calls all of them, in an order in which each finds its inputs.
void combine(Layer& layer);

// Keys of launchers and of DeepSpeed's files for the parts of a run (combine_launch.cc).
void combine_launch(Layer& layer);
void combine_batch(Layer& layer);
// Intervals of a run's actions, and what ends the run (combine_run.cc).
void combine_run(Layer& layer);
// memory.shard and memory.tier (combine_shard.cc).
void combine_shard(Layer& layer);
// The loss between two answers (combine_preference.cc).
void combine_preference(Layer& layer);
// The data sets, and what tools have of their own (dialects/).
void combine_data(Layer& layer);
void combine_llama_factory(Layer& layer);
void combine_llama_factory_freeze(Layer& layer);
void combine_axolotl(Layer& layer);
void combine_torchtune(Layer& layer);
void combine_trl(Layer& layer);

// Fills in the method of a tool's recipe that has none.
void fill_tool_method(Layer& layer);
// For arguments of transformers' Trainer that name neither adapters nor a model.
void note_trainers_method(Layer& layer);
// Fills in a tool's behaviour where its recipe states nothing, and ours would differ.
void fill_tool_defaults(Layer& layer);

}  // namespace plimsoll
