#include "device/catalogue.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "base/units.h"

namespace plimsoll {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::string found(std::string_view text) { return full_name(find_card(text, "memory.gpu")); }

TEST(Catalogue, a_card_goes_by_its_name_however_it_is_written) {
  for (const char* text :
       {"RTX 3080 20GB", "rtx3080-20gb", "NVIDIA GeForce RTX 3080 20 GB", "RTX 3080 20GiB"})
    EXPECT_EQ(found(text), "RTX 3080 20GB") << text;
  EXPECT_EQ(found("NVIDIA H100"), "H100 SXM 80GB");
  EXPECT_EQ(found("H100 80GB"), "H100 SXM 80GB");
  EXPECT_EQ(found("h100-pcie"), "H100 PCIe 80GB");
  EXPECT_EQ(found("Tesla T4"), "T4 16GB");
  EXPECT_EQ(found("A6000"), "RTX A6000 48GB");
  EXPECT_EQ(found("4090"), "RTX 4090 24GB");
  EXPECT_EQ(found("4060 ti 16gb"), "RTX 4060 Ti 16GB");
  EXPECT_EQ(found("RTX 3060 Laptop GPU"), "RTX 3060 Laptop 6GB");
  EXPECT_EQ(found("NVIDIA GeForce RTX 4060 Laptop GPU"), "RTX 4060 Laptop 8GB");
  EXPECT_EQ(found("rtx 3080 mobile 16gb"), "RTX 3080 Laptop 16GB");
  EXPECT_EQ(found("3060"), "RTX 3060 12GB");
  EXPECT_EQ(found("H100 SXM5"), "H100 SXM 80GB");
  EXPECT_EQ(found("H200 SXM5"), "H200 141GB");
  // As the driver prints them.
  EXPECT_EQ(found("NVIDIA A100-SXM4-80GB"), "A100 80GB");
  EXPECT_EQ(found("NVIDIA A100-PCIE-40GB"), "A100 40GB");
  EXPECT_EQ(found("NVIDIA H100 80GB HBM3"), "H100 SXM 80GB");
  EXPECT_EQ(found("NVIDIA RTX 6000 Ada Generation"), "RTX 6000 Ada 48GB");
  EXPECT_EQ(found("NVIDIA RTX PRO 6000 Blackwell Workstation Edition"), "RTX PRO 6000 96GB");
  EXPECT_EQ(found("NVIDIA RTX PRO 6000 Blackwell Server Edition"), "RTX PRO 6000 96GB");
}

TEST(Catalogue, a_size_chooses_among_cards_of_a_name) {
  EXPECT_EQ(found("RTX 4060 Ti"), "RTX 4060 Ti 8GB");
  EXPECT_EQ(found("RTX 4060 Ti 16GB"), "RTX 4060 Ti 16GB");
  EXPECT_EQ(find_card("A100", "").bandwidth, 1555);
  EXPECT_EQ(find_card("A100 80GB", "").bandwidth, 2039);
  EXPECT_EQ(find_card("RTX 3080 12GB", "").multiprocessors, 70);
}

TEST(Catalogue, a_card_that_the_driver_names_without_its_size_goes_by_its_memory) {
  const auto of = [](const char* name, int64_t mib) {
    return full_name(find_card_of(name, mib * kMiB, "device: cuda"));
  };
  EXPECT_EQ(of("NVIDIA GeForce RTX 4060 Ti", 16380), "RTX 4060 Ti 16GB");
  EXPECT_EQ(of("NVIDIA GeForce RTX 4060 Ti", 7900), "RTX 4060 Ti 8GB");
  EXPECT_EQ(of("NVIDIA A100-SXM4-80GB", 81920), "A100 80GB");
  EXPECT_EQ(of("Tesla T4", 14914), "T4 16GB");
}

TEST(Catalogue, another_size_is_a_rebuilt_card_within_reason) {
  EXPECT_EQ(find_card("RTX 3080 20GB", "").memory_mib, 20480);
  EXPECT_EQ(find_card("RTX 2080 Ti 22GB", "").memory_mib, 22528);
  EXPECT_THAT([] { find_card("RTX 3060 1200GB", "memory.gpu"); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr("no RTX 3060 has 1200 GB"), HasSubstr("with 12"))));
}

TEST(Catalogue, an_unknown_card_is_refused_with_the_nearest) {
  EXPECT_THAT([] { find_card("RTX 3065", "memory.gpu"); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr("memory.gpu: 'RTX 3065'"), HasSubstr("RTX 3060 12GB"),
                                              HasSubstr("--device card --memory"))));
  for (const char* text : {"", "GTX 1080", "12GB", "GeForce", "M3 Max"})
    EXPECT_THROW(find_card(text, "memory.gpu"), UsageError) << text;
}

TEST(Catalogue, a_card_that_cannot_be_used_is_refused_with_its_generation) {
  const auto refusal = [](const char* text) -> std::string {
    try {
      find_card(text, "memory.gpu");
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  for (const char* text : {"V100", "Tesla V100-SXM2-32GB", "v100 16gb", "NVIDIA TITAN V"})
    EXPECT_THAT(refusal(text), HasSubstr("cannot be used: it is a card of Volta, compute capability 7.0"))
        << text;
  for (const char* text : {"GTX 1080 Ti", "NVIDIA GeForce GTX 1060 6GB", "1070", "P40", "Quadro P2000"})
    EXPECT_THAT(refusal(text), HasSubstr("Pascal, compute capability 6.1")) << text;
  EXPECT_THAT(refusal("Tesla P100-PCIE-16GB"), HasSubstr("compute capability 6.0"));
  EXPECT_THAT(refusal("Tesla M40 24GB"), HasSubstr("Maxwell"));
  EXPECT_THAT(refusal("Tesla K80"), HasSubstr("Kepler"));
  for (const char* text : {"GH200", "NVIDIA GH200 480GB", "DGX Spark"})
    EXPECT_THAT(refusal(text), HasSubstr("Arm CPU")) << text;
  for (const char* text : {"M4 Max", "MI300X", "RX 7900 XTX"})
    EXPECT_THAT(refusal(text), HasSubstr("not a card of NVIDIA")) << text;
}

TEST(Catalogue, cards_of_turing_without_tensor_cores_and_of_workstations_go_by_their_names) {
  EXPECT_EQ(found("GTX 1650"), "GTX 1650 4GB");
  EXPECT_EQ(found("1660 super"), "GTX 1660 SUPER 6GB");
  EXPECT_EQ(found("NVIDIA GeForce GTX 1650 with Max-Q Design"), "GTX 1650 Laptop 4GB");
  EXPECT_EQ(found("NVIDIA GeForce RTX 2080 Super with Max-Q Design"), "RTX 2080 SUPER Laptop 8GB");
  EXPECT_EQ(found("RTX 2060"), "RTX 2060 6GB");
  EXPECT_EQ(found("RTX 2060 12GB"), "RTX 2060 12GB");
  EXPECT_EQ(found("RTX 3050"), "RTX 3050 8GB");
  EXPECT_EQ(found("Quadro RTX 6000"), "Quadro RTX 6000 24GB");
  EXPECT_EQ(found("RTX 4000 Ada Generation"), "RTX 4000 Ada 20GB");
  EXPECT_EQ(found("NVIDIA GeForce RTX 4090 D"), "RTX 4090 D 24GB");
  EXPECT_EQ(found("NVIDIA H200 NVL"), "H200 NVL 141GB");
  EXPECT_FALSE(describe_card(find_card("GTX 1660", ""), true).reaches_cards);
  EXPECT_TRUE(describe_card(find_card("Quadro RTX 8000", ""), true).reaches_cards);
}

TEST(Catalogue, every_name_means_its_own_row) {
  for (const Card& card : all_cards()) {
    const Card again = find_card(full_name(card), "");
    EXPECT_EQ(std::tie(again.name, again.gigabytes, again.memory_mib, again.bandwidth),
              std::tie(card.name, card.gigabytes, card.memory_mib, card.bandwidth))
        << full_name(card);
  }
}

// Facts in which data sheets cannot differ: a slip in a column shows here.
TEST(Catalogue, rows_agree_with_what_their_generations_are) {
  for (const Card& card : all_cards()) {
    SCOPED_TRACE(full_name(card));
    const double sold = card.gigabytes * 1024.0;
    EXPECT_GT(static_cast<double>(card.memory_mib), 0.93 * sold);
    EXPECT_LE(static_cast<double>(card.memory_mib), 1.0 * sold);
    // f32 operations of a multiprocessor and a cycle: 64 lanes before Ampere's GeForce, 128 since.
    const bool narrow = card.compute_capability == 75 || card.compute_capability == 80;
    const double gigahertz = card.tflops_32 * 1e3 / (2.0 * (narrow ? 64 : 128) * card.multiprocessors);
    EXPECT_GT(gigahertz, 1.0);
    EXPECT_LT(gigahertz, 2.8);
    // Tensor cores are 2, 4, 8, 16 or 32 times as fast, a little less where they are held to lower clocks.
    const double faster = card.tflops_16 / card.tflops_32;
    const bool has_tensor_cores = !card.name.starts_with("GTX");
    EXPECT_GT(faster, has_tensor_cores ? 1.9 : 0.99);
    EXPECT_LT(faster, card.compute_capability == 100 ? 32 : has_tensor_cores ? 16.5 : 1.01);
  }
}

TEST(Catalogue, what_is_outside_the_arena_is_stated_with_its_uncertainty) {
  const DeviceDescription h100 = describe_card(find_card("H100", ""), true);
  ASSERT_EQ(h100.outside.size(), 3U);
  EXPECT_EQ(h100.outside[1].name, "context");
  EXPECT_NEAR(static_cast<double>(h100.outside[1].bytes) / kMiB, 520, 5);
  int64_t sum = 0;
  for (const OutsidePart& part : h100.outside) sum += part.bytes + part.uncertain;
  EXPECT_EQ(outside_bytes(h100), sum);
  // In a share of the card the driver's bytes are not counted.
  const DeviceDescription share = describe_card(find_card("H100", ""), false);
  EXPECT_EQ(outside_bytes(h100) - outside_bytes(share), h100.outside[0].bytes + h100.outside[0].uncertain);
}

TEST(Catalogue, what_was_measured_takes_the_place_of_what_is_guessed) {
  const Card card = find_card("H100", "");
  MeasuredCard measured;
  measured.memory_bytes = card.memory_mib * kMiB - 700 * kMiB;
  measured.process_bytes = 444 * kMiB;
  measured.host_bytes = 180 * kMiB;
  const DeviceDescription whole = describe_card(card, true, &measured);
  ASSERT_EQ(whole.outside.size(), 2U);
  EXPECT_EQ(whole.outside[0].bytes, 700 * kMiB);
  EXPECT_EQ(whole.outside[0].uncertain, 0);
  EXPECT_EQ(whole.outside[1].bytes, 444 * kMiB);
  EXPECT_LT(whole.outside[1].uncertain, 20 * kMiB);
  EXPECT_EQ(describe_card(card, false, &measured).outside.size(), 1U);
  EXPECT_EQ(host_part(&measured).bytes, 180 * kMiB);
  EXPECT_GT(host_part().uncertain, host_part(&measured).uncertain);
  // Rates that were not measured stay those of the data sheet.
  EXPECT_EQ(whole.rates.matmul_bf16, describe_card(card, true).rates.matmul_bf16);
  measured.rates = DeviceRates{};
  measured.rates->matmul_bf16 = 5e14;
  EXPECT_EQ(describe_card(card, true, &measured).rates.matmul_bf16, 5e14);
}

TEST(Catalogue, what_was_not_measured_of_attention_is_guessed_beside_what_was) {
  const Card card = find_card("H100", "");
  MeasuredCard measured;
  measured.rates = DeviceRates{};
  measured.rates->vector_bf16 = 2e14;
  measured.rates->ops = {{"attention", DType::bf16, 64, {{512, 1e14}}},
                         {"attention_plain", DType::bf16, 136, {{512, 5e12}}}};
  const DeviceRates rates = describe_card(card, true, &measured).rates;
  const auto rate = [&](const char* op, DType dtype) {
    return rate_at(*find_curve(rates, op, dtype, 64), 512);
  };
  EXPECT_EQ(fault_of(rates), "");
  EXPECT_NEAR(rate("attention", DType::bf16), 1e14, 1);
  EXPECT_NEAR(rate("attention_plain", DType::bf16), 5e12, 1);
  EXPECT_LT(rate("attention_with_dropout", DType::bf16), 1e14);
  EXPECT_LT(rate("attention", DType::f32), 0.5 * card.tflops_32 * 1e12);
  EXPECT_GT(rate("attention", DType::f32), rate("attention_grad", DType::f32));
  EXPECT_LT(rate("attention_grad_plain", DType::bf16), rate("attention_grad", DType::f32));
}

TEST(Catalogue, gated_linear_attention_is_guessed_where_it_was_not_measured) {
  const Card card = find_card("H100", "");
  const auto rate = [](const DeviceDescription& device, const char* op) {
    const RateCurve* const curve = find_curve(device.rates, op, DType::bf16);
    return curve == nullptr ? 0.0 : rate_at(*curve, 4096);
  };
  const DeviceDescription guessed = describe_card(card, true);
  EXPECT_EQ(fault_of(guessed.rates), "");
  EXPECT_GT(rate(guessed, "gla"), 0.0);
  EXPECT_LT(rate(guessed, "gla"), guessed.rates.matmul_bf16 / 10);
  EXPECT_GT(rate(guessed, "delta_rule_grad"), 0.0);
  EXPECT_LT(rate(guessed, "delta_rule"), guessed.rates.matmul_f32);
  MeasuredCard measured;
  measured.rates = DeviceRates{};
  measured.rates->ops = {{"gla", DType::bf16, 0, {{1, 3e12}}}};
  const DeviceDescription half = describe_card(card, true, &measured);
  EXPECT_NEAR(rate(half, "gla"), 3e12, 1);
  EXPECT_EQ(rate(half, "gla_grad"), rate(guessed, "gla_grad"));
}

// PyTorch's out-of-memory messages of these cards say how much of them there is.
TEST(Catalogue, the_drivers_part_covers_what_people_saw) {
  const std::pair<const char*, double> seen[] = {{"RTX 3080 10GB", 9.78}, {"RTX 4090", 23.52},
                                                 {"A100 80GB", 79.25},    {"A100 40GB", 39.50},
                                                 {"T4", 14.58},           {"A30", 23.53}};
  for (const auto& [name, gibibytes] : seen) {
    const Card card = find_card(name, "");
    const OutsidePart driver = outside_parts(card, true).front();
    const double missing = static_cast<double>(card.memory_mib) - 1024 * gibibytes;
    EXPECT_GE(static_cast<double>(driver.bytes + driver.uncertain) / kMiB, missing) << name;
    EXPECT_LE(static_cast<double>(driver.bytes - driver.uncertain) / kMiB, missing) << name;
  }
}

// Public aggregate scores of deep learning: 25.7 of a T4 against 40.9 of an RTX 3060.
TEST(Catalogue, cards_of_70_watts_are_taken_at_what_they_sustain) {
  const auto products = [](const char* name) {
    return describe_card(find_card(name, ""), true).rates.matmul_bf16;
  };
  const double ratio = products("T4") / products("RTX 3060"), seen = 25.7 / 40.9;
  EXPECT_GT(ratio, seen / 1.3);
  EXPECT_LT(ratio, seen * 1.3);
  EXPECT_NEAR(products("L4") / products("T4"), 2.7, 0.1);
}

TEST(Catalogue, the_description_is_of_a_gpu_beside_a_host) {
  const DeviceDescription card = describe_card(find_card("RTX 3090", ""), true);
  EXPECT_EQ(card.backend, Backend::gpu);
  EXPECT_FALSE(card.reaches_host);
  EXPECT_EQ(card.card.compute_capability, 86);
  EXPECT_EQ(fault_of(card.rates), "");
  EXPECT_FALSE(card.rates.calibrated);
  EXPECT_EQ(card.matmul_scratch_bytes({}), 4 * kMiB);
  EXPECT_EQ(describe_card(find_card("H100", ""), true).matmul_scratch_bytes({}), 32 * kMiB);
  EXPECT_EQ(describe_card(find_card("RTX 3060", ""), true).matmul_scratch_bytes({}), 1 * kMiB);
  EXPECT_GT(card.rates.matmul_bf16, 10 * reference_description().rates.matmul_bf16);
}

}  // namespace
}  // namespace plimsoll
