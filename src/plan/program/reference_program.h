// The program that computes, before the first step, the log-probabilities of a run's rows by the model that
// it began with: where no weight of that model remains and the loss asks for them (task: dpo in full).
#pragma once

namespace plimsoll {

inline constexpr const char* kReferenceProgram = "reference";
// f32 [B, 2] (ops/loss/linear_log_prob.h).
inline constexpr const char* kReferenceTensor = "logps";

}  // namespace plimsoll
