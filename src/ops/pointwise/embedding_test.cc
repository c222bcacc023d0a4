#include "harness/op_case.h"

namespace plimsoll::harness {
namespace {

const Values kIds = {3, 0, 3, 6, 0, 0};

// More tokens than a block of a GPU has threads.
Values many_ids() {
  Values ids;
  for (int i = 0; i < 150; ++i) ids.push_back(i * i % 7);
  return ids;
}

[[maybe_unused]] const bool kEmbeddingCases = register_cases({
    {.name = "embedding_pads_with_zeros",
     .body = "tensor ids i32[6] input\n"
             "tensor table %[7,5] trainable\n"
             "h %[6,5] = embedding(ids, table, step) @e forward\n",
     .given = {{"ids", kIds}},
     .step = {{StepValue::live_tokens, 4}}},
    {.name = "embedding_dw_overwrites",
     .body = "tensor ids i32[6] input\n"
             "tensor d_h %[6,67] input\n"
             "tensor g f32[7,67] gradient\n"
             "g = embedding_dw(ids, d_h, step) {accumulate=0, vocab=7} @e backward\n",
     .given = {{"ids", kIds}},
     .step = {{StepValue::live_tokens, 4}}},
    {.name = "embedding_dw_of_many_tokens",
     .body = "tensor ids i32[150] input\n"
             "tensor d_h %[150,3] input\n"
             "tensor g f32[7,3] gradient\n"
             "g = embedding_dw(ids, d_h, step) {accumulate=0, vocab=7} @e backward\n",
     .given = {{"ids", many_ids()}},
     .step = {{StepValue::live_tokens, 149}}},
    {.name =
         "embedding_dw_leaves_the_padding_row",  // at the start, in the midst, twice, behind the live tokens
     .body = "tensor ids i32[9] input\n"
             "tensor d_h %[9,67] input\n"
             "tensor g f32[7,67] gradient\n"
             "g = embedding_dw(ids, d_h, step) {accumulate=0, padding_row=3, vocab=7} @e backward\n",
     .given = {{"ids", {3, 0, 3, 3, 6, 0, 2, 3, 1}}},
     .step = {{StepValue::live_tokens, 8}}},
    {.name = "embedding_dw_adds",
     .body = "tensor ids i32[6] input\n"
             "tensor d_h %[6,67] input\n"
             "tensor g %[7,67] gradient\n"
             "g = embedding_dw(ids, d_h, step) {accumulate=1, vocab=7} @e backward\n",
     .given = {{"ids", kIds}},
     .step = {{StepValue::live_tokens, 6}},
     .slack = 3},  // the gradient is rounded after each of three tokens
});

}  // namespace
}  // namespace plimsoll::harness
