#include "harness/optimizer_cases.h"

namespace plimsoll::harness {
namespace {

UpdateCase lion(const std::string& name, const std::string& weight, const std::string& state) {
  return {.name = name,
          .op = "lion",
          .attributes = "beta1=0.9, beta2=0.99, stochastic=1, weight_decay=0.1",
          .weight = weight,
          .states = {"m " + state + "[3,50]"}};
}

UpdateCase sgd(const std::string& name, const std::string& weight, bool momentum) {
  return {
      .name = name,
      .op = "sgd",
      .attributes = "momentum=" + std::string(momentum ? "0.9" : "0.0") + ", stochastic=1, weight_decay=0.1",
      .weight = weight,
      .states = {momentum ? "buffer " + weight + "[3,50]" : "-"}};
}

OpCase with_master(UpdateCase c) {
  c.weight = "bf16";
  c.master = true;
  return update_case(c);
}

[[maybe_unused]] const bool kOneStateCases = register_cases({
    update_case(lion("lion_fp32", "f32", "f32")),
    update_case(lion("lion_bf16", "bf16", "f32")),
    update_case(lion("lion_bf16_pure", "bf16", "bf16")),
    with_master(lion("lion_bf16_master", "bf16", "f32")),
    update_case(sgd("sgd_fp32", "f32", false)),
    update_case(sgd("sgd_momentum_fp32", "f32", true)),
    update_case(sgd("sgd_momentum_bf16_pure", "bf16", true)),
    with_master(sgd("sgd_bf16_master", "f32", false)),
});

}  // namespace
}  // namespace plimsoll::harness
