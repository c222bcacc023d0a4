// The program that says, before the first step, what the model that a run began with makes of its rows: where
// no weight of it remains and the loss asks (task: dpo in full).
#pragma once

namespace plimsoll {

inline constexpr const char* kReferenceProgram = "reference";
// f32 [B, 2] (ops/loss/linear_log_prob.h).
inline constexpr const char* kReferenceTensor = "logps";

}  // namespace plimsoll
