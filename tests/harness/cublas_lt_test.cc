// Tests of the places where cuBLASLt is looked for, of what is refused as one, and of what it has to compute:
// by one whose products are plain loops (tests/fake_cublas_lt.cc).
#include "gpu/cublas_lt.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <string>

#include "base/error.h"
#include "files/test_folder.h"

namespace plimsoll::gpu {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::ThrowsMessage;

constexpr const char* kFake = PLIMSOLL_FAKE_CUBLASLT;

// The variables that a process finds in its environment.
ReadVariable variables(const std::map<std::string, std::string>& values) {
  return [values](const char* name) {
    const auto found = values.find(name);
    return found == values.end() ? nullptr : found->second.c_str();
  };
}

// A stand-in for the library that is not there.
class Fake {
 public:
  explicit Fake(const std::string& words) { setenv("FAKE_CUBLASLT", words.c_str(), 1); }
  ~Fake() { unsetenv("FAKE_CUBLASLT"); }
  Fake(const Fake&) = delete;
  Fake& operator=(const Fake&) = delete;
};

OpenedLibrary open_fake() { return open_cublas_lt(variables({{"PLIMSOLL_CUBLASLT", kFake}})); }

void touch(const fs::path& file) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << "no library";
}

std::vector<std::string> texts(const std::vector<fs::path>& places) {
  std::vector<std::string> all;
  for (const fs::path& place : places) all.push_back(place.string());
  return all;
}

class CublasLtPlaces : public ::testing::Test {
 protected:
  [[nodiscard]] const fs::path& folder() const { return folder_.path(); }

 private:
  TestFolder folder_;
};

TEST_F(CublasLtPlaces, the_loader_then_folders_of_cuda_and_of_pythons_packages) {
  const fs::path root = folder();
  touch(root / "cuda/lib64/libcublasLt.so.13");
  touch(root / "venv/lib/python3.11/site-packages/nvidia/cu13/lib/libcublasLt.so.13");
  touch(root / "venv/lib/python3.11/site-packages/nvidia/cublas/lib/libcublasLt.so.12");
  touch(root / "python/lib/python3.12/dist-packages/nvidia/cu13/lib/libcublasLt.so.13");
  touch(root / "python/bin/python3");
  const ReadVariable environment =
      variables({{"CUDA_HOME", (root / "cuda").string()},
                 {"VIRTUAL_ENV", (root / "venv").string()},
                 {"PATH", (root / "nothing").string() + ":" + (root / "python/bin").string()},
                 {"HOME", (root / "home").string()}});
  std::vector<std::string> found;
  for (const std::string& place : texts(cublas_lt_places(environment)))
    if (place.starts_with(root.string()) || place.find('/') == std::string::npos) found.push_back(place);
  const std::string packages = (root / "venv/lib/python3.11/site-packages/nvidia").string();
  const std::string python = (root / "python/lib/python3.12/dist-packages/nvidia").string();
  EXPECT_THAT(found,
              ElementsAre("libcublasLt.so.13", (root / "cuda/lib64/libcublasLt.so.13").string(),
                          packages + "/cu13/lib/libcublasLt.so.13", python + "/cu13/lib/libcublasLt.so.13",
                          "libcublasLt.so.12", packages + "/cublas/lib/libcublasLt.so.12"));
}

TEST_F(CublasLtPlaces, a_file_that_is_named_is_all_that_is_tried) {
  const ReadVariable named = variables({{"PLIMSOLL_CUBLASLT", "/a/file"}, {"CUDA_HOME", folder().string()}});
  EXPECT_THAT(texts(cublas_lt_places(named)), ElementsAre("/a/file"));
  const ReadVariable none = variables({{"PLIMSOLL_CUBLASLT", "none"}, {"CUDA_HOME", folder().string()}});
  EXPECT_THAT(cublas_lt_places(none), IsEmpty());
  const OpenedLibrary opened = open_cublas_lt(none);
  EXPECT_EQ(opened.library, nullptr);
  EXPECT_EQ(opened.reason, "PLIMSOLL_CUBLASLT=none");
}

TEST_F(CublasLtPlaces, a_file_that_is_named_and_is_no_library_is_refused_by_name) {
  touch(folder() / "text");
  const auto open = [](const std::string& file) {
    return [file] { open_cublas_lt(variables({{"PLIMSOLL_CUBLASLT", file}})); };
  };
  EXPECT_THAT(open((folder() / "missing").string()), ThrowsMessage<UsageError>(HasSubstr("missing")));
  EXPECT_THAT(open((folder() / "text").string()), ThrowsMessage<UsageError>(HasSubstr("text")));
  EXPECT_THAT(open("libm.so.6"), ThrowsMessage<UsageError>(HasSubstr("has no cublasLtGetVersion")));
  {
    const Fake old("version=111103");
    EXPECT_THAT(open(kFake), ThrowsMessage<UsageError>(HasSubstr("is of version 111103")));
  }
  const Fake broken("create=1");
  EXPECT_THAT(open(kFake), ThrowsMessage<UsageError>(HasSubstr("cublasLtCreate ended with status 1")));
}

TEST_F(CublasLtPlaces, a_file_that_was_found_and_is_no_library_is_told_and_does_not_end_the_run) {
  const fs::path file = folder() / "cuda/lib64/libcublasLt.so.13";
  touch(file);
  const OpenedLibrary opened = open_cublas_lt(variables({{"CUDA_HOME", (folder() / "cuda").string()}}));
  if (opened.library != nullptr) GTEST_SKIP() << "this machine has " << opened.library->name();
  EXPECT_THAT(opened.reason, HasSubstr(file.string()));
}

TEST(CublasLtLibrary, its_name_is_its_version) {
  EXPECT_EQ(open_fake().library->name(), "cuBLASLt 13.1.0");
  const Fake older("version=120804");
  EXPECT_EQ(open_fake().library->name(), "cuBLASLt 12.8.4");
}

// One product over values of f32, rows of C and of its operands in memory that is aligned as arenas are.
class Product {
 public:
  static constexpr int64_t kM = 6, kN = 8, kK = 5;

  explicit Product(bool a_transposed, bool b_transposed) : a_(a_transposed), b_(b_transposed) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (float* values : {a, b, c, bias})
      for (int i = 0; i < 64; ++i) values[i] = normal(random);
  }
  LibraryMatmul matmul() {
    return {.shape = {kM, kN, kK, DType::f32, DType::f32, DType::f32, a_, b_},
            .alpha = 0.5F,
            .a = a,
            .b = b,
            .c = c,
            .bias = bias,
            .workspace = std::as_writable_bytes(std::span(workspace))};
  }
  // As plain loops have it, over the first `live` rows of stored A, where C held `held`.
  [[nodiscard]] float expected(int64_t i, int64_t j, int64_t live, float held = 0) const {
    float sum = 0;
    for (int64_t l = 0; l < (a_ ? live : kK); ++l)
      sum += (a_ ? a[l * kM + i] : a[i * kK + l]) * (b_ ? b[j * kK + l] : b[l * kN + j]);
    return sum * 0.5F + held + bias[j];
  }

  alignas(256) float a[64] = {}, b[64] = {}, c[64] = {}, bias[64] = {};
  alignas(256) float workspace[512] = {};

 private:
  bool a_, b_;
};

TEST(CublasLtProduct, rows_and_columns_change_places_and_what_is_not_live_stays) {
  const OpenedLibrary opened = open_fake();
  for (const auto& [a_transposed, b_transposed] : {std::pair{false, true}, {false, false}, {true, false}})
    for (const bool adds : {true, false}) {
      Product one(a_transposed, b_transposed);
      const auto product = opened.library->find(one.matmul());
      ASSERT_NE(product, nullptr);
      const int64_t planned = a_transposed ? Product::kK : Product::kM;
      for (const int64_t live : {planned, planned - 2, int64_t{1}, planned}) {
        const Product before = one;
        ASSERT_TRUE(product->run(nullptr, live, adds));
        for (int64_t i = 0; i < Product::kM; ++i)
          for (int64_t j = 0; j < Product::kN; ++j) {
            const auto at = static_cast<size_t>(i * Product::kN + j);
            if (a_transposed || i < live)
              EXPECT_NEAR(one.c[at], one.expected(i, j, live, adds ? before.c[at] : 0.0F), 1e-5)
                  << i << " " << j;
            else
              EXPECT_EQ(one.c[at], before.c[at]) << i << " " << j;
          }
      }
    }
}

TEST(CublasLtProduct, code_is_loaded_without_a_change_to_c) {
  const OpenedLibrary opened = open_fake();
  for (const bool a_transposed : {false, true}) {
    Product one(a_transposed, false);
    const Product before = one;
    const auto product = opened.library->find(one.matmul());
    product->load(nullptr);
    EXPECT_TRUE(std::equal(std::begin(one.c), std::end(one.c), std::begin(before.c)));
    EXPECT_FALSE(
        std::equal(std::begin(one.workspace), std::end(one.workspace), std::begin(before.workspace)));
    ASSERT_TRUE(product->run(nullptr, a_transposed ? Product::kK : Product::kM, false));
    EXPECT_NEAR(one.c[9], one.expected(1, 1, Product::kK), 1e-5);  // the sizes are whole again
    LibraryMatmul without = one.matmul();
    without.workspace = {};
    opened.library->find(without)->load(nullptr);  // there is no room, and nothing happens
  }
}

TEST(CublasLtProduct, values_of_tf32_are_cut) {
  const OpenedLibrary opened = open_fake();
  Product one(false, true);
  LibraryMatmul matmul = one.matmul();
  matmul.tf32 = true;
  ASSERT_TRUE(opened.library->find(matmul)->run(nullptr, Product::kM, false));
  double off = 0;
  for (int64_t j = 0; j < Product::kN; ++j)
    off = std::max(off, double{std::abs(one.c[j] - one.expected(0, j, Product::kM))});
  EXPECT_GT(off, 1e-5);
  EXPECT_LT(off, 1e-2);
}

TEST(CublasLtProduct, what_the_library_refuses_is_refused_and_what_fails_ends_the_run) {
  const OpenedLibrary opened = open_fake();
  Product one(false, true);
  {
    const Fake knows_nothing("knows=none");
    EXPECT_EQ(opened.library->find(one.matmul()), nullptr);
  }
  const auto product = opened.library->find(one.matmul());
  {
    const Fake of_four("rows=4");
    const Product before = one;
    EXPECT_FALSE(product->run(nullptr, Product::kM, true));
    EXPECT_TRUE(std::equal(std::begin(one.c), std::end(one.c), std::begin(before.c)));
    EXPECT_TRUE(product->run(nullptr, 4, true));
    EXPECT_EQ(opened.library->use.refused_runs, 1);
  }
  const Fake fails("fails=13");
  EXPECT_THAT([&] { (void)product->run(nullptr, 2, true); },
              ThrowsMessage<StoppedError>(HasSubstr("cublasLtMatmul ended with status 13")));
}

// The choice must not depend on where a plan puts a tensor.
TEST(CublasLtProduct, an_address_that_is_less_aligned_than_arenas_promise_is_told) {
  const OpenedLibrary opened = open_fake();
  Product one(false, true);
  LibraryMatmul matmul = one.matmul();
  matmul.a = one.a + 1;
  const auto product = opened.library->find(matmul);
  EXPECT_TRUE(product->run(nullptr, Product::kM, false));  // the fake one holds it to what it was told
}

}  // namespace
}  // namespace plimsoll::gpu
