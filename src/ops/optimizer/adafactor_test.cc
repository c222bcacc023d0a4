#include <gtest/gtest.h>

#include "base/error.h"
#include "harness/op_harness.h"
#include "harness/optimizer_cases.h"

namespace plimsoll::harness {
namespace {

OpCase adafactor(const std::string& name, const std::string& shape, const std::string& row,
                 const std::string& column, const std::string& weight, bool master) {
  UpdateCase c = {.name = name,
                  .op = "adafactor",
                  .attributes = "stochastic=1, weight_decay=0.1",
                  .shape = shape,
                  .weight = weight,
                  .master = master,
                  .states = {row == "0" ? "-" : "row f32[" + row + "]", "column f32[" + column + "]"}};
  c.given["column"] = Values(std::stoul(column), 0.2);
  if (row != "0") c.given["row"] = Values(std::stoul(row), 0.3);
  return update_case(c);
}

[[maybe_unused]] const bool kAdafactorCases = register_cases({
    adafactor("adafactor_fp32", "70,301", "70", "301", "f32", false),
    adafactor("adafactor_long_rows_fp32", "3,1500", "3", "1500", "f32", false),
    adafactor("adafactor_vector_fp32", "301", "0", "301", "f32", false),
    adafactor("adafactor_bf16", "70,33", "70", "33", "bf16", false),
    adafactor("adafactor_bf16_master", "70,33", "70", "33", "bf16", true),
});

TEST(Adafactor, refuses_slices_since_its_averages_need_the_whole_gradient) {
  OpCase c = adafactor("adafactor", "70,33", "70", "33", "f32", false);
  c.body.replace(c.body.find("{stochastic"), 1, "{elements=2310, first=0, ");
  EXPECT_THROW(make_graph(c, DType::f32), InternalError);
}

}  // namespace
}  // namespace plimsoll::harness
