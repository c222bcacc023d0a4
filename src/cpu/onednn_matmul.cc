#include "cpu/onednn_matmul.h"

#include <algorithm>
#include <array>
#include <dnnl.hpp>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace plimsoll {
namespace {

using Desc = dnnl::memory::desc;

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

Desc matrix(int64_t rows, int64_t columns, DType type, bool transposed) {
  const auto data = type == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
  const dnnl::memory::dims strides =
      transposed ? dnnl::memory::dims{1, rows} : dnnl::memory::dims{columns, 1};
  return {{rows, columns}, data, strides};
}

struct Descs {
  Desc a, b, c, bias;
};

dnnl::matmul::primitive_desc describe(const Descs& descs, bool accumulate, bool bias) {
  dnnl::post_ops post;
  if (accumulate) post.append_sum(1.0F);
  if (bias) post.append_binary(dnnl::algorithm::binary_add, descs.bias);
  dnnl::primitive_attr attr;
  attr.set_post_ops(post);
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return {dnnl::matmul::desc(descs.a, descs.b, descs.c), attr, engine()};
}

class OnednnMatmul final : public Matmul {
 public:
  // Throws dnnl::error where oneDNN does not have the types.
  OnednnMatmul(const MatmulShape& shape, std::unique_ptr<Matmul> own)
      : own_(std::move(own)),
        full_(shape.a_transposed ? shape.k : shape.m),
        descs_{matrix(shape.m, shape.k, shape.a, shape.a_transposed),
               matrix(shape.k, shape.n, shape.b, shape.b_transposed),
               matrix(shape.m, shape.n, shape.c, false), matrix(1, shape.n, shape.c, false)} {}

  // The four variants; false if one of them is oneDNN's plain gemm, whose buffers no plan knows.
  bool build() {
    scratch_ = own_->scratch_bytes();
    for (const bool accumulate : {false, true}) {
      for (const bool bias : {false, true}) {
        const auto desc = describe(descs_, accumulate, bias);
        if (std::string_view(desc.impl_info_str()).find("gemm:") == 0) return false;
        Variant& variant = variants_[index(accumulate, bias)];
        variant.scratchpad = desc.scratchpad_desc();
        variant.primitive = dnnl::matmul(desc);
        scratch_ = std::max(scratch_, static_cast<int64_t>(variant.scratchpad.get_size()));
      }
    }
    return true;
  }

  std::unique_ptr<Matmul> release_own() { return std::move(own_); }

  [[nodiscard]] int64_t scratch_bytes() const override { return scratch_; }
  [[nodiscard]] std::string_view kernel_id() const override { return "onednn-amx-bf16"; }

  void run(const Args& args) const override {
    if (args.live < full_ || args.alpha != 1.0F) return own_->run(args);
    const bool bias = args.bias != nullptr;
    const Variant& variant = variants_[index(args.accumulate, bias)];
    const auto memory = [](const Desc& desc, const void* data) {
      return dnnl::memory(desc, engine(), const_cast<void*>(data));  // oneDNN's API has no const memory
    };
    std::unordered_map<int, dnnl::memory> bound = {
        {DNNL_ARG_SRC, memory(descs_.a, args.a)},
        {DNNL_ARG_WEIGHTS, memory(descs_.b, args.b)},
        {DNNL_ARG_DST, memory(descs_.c, args.c)},
        {DNNL_ARG_SCRATCHPAD, memory(variant.scratchpad, args.scratch)}};
    const int bias_place = args.accumulate ? 1 : 0;  // after the sum
    if (bias)
      bound.emplace(DNNL_ARG_ATTR_MULTIPLE_POST_OP(bias_place) | DNNL_ARG_SRC_1,
                    memory(descs_.bias, args.bias));
    dnnl::stream stream(engine());
    variant.primitive.execute(stream, bound);
    stream.wait();
  }

 private:
  struct Variant {
    Desc scratchpad;
    dnnl::matmul primitive;
  };
  static size_t index(bool accumulate, bool bias) { return (accumulate ? 2U : 0U) + (bias ? 1U : 0U); }

  std::unique_ptr<Matmul> own_;
  int64_t full_;
  Descs descs_;
  std::array<Variant, 4> variants_;
  int64_t scratch_ = 0;
};

}  // namespace

std::unique_ptr<Matmul> with_onednn(const MatmulShape& shape, std::unique_ptr<Matmul> own) {
  auto library = std::make_unique<OnednnMatmul>(shape, std::move(own));
  try {
    if (library->build()) return library;
  } catch (const dnnl::error&) {
    // oneDNN does not have this case on this machine: the own kernel does it.
  }
  return library->release_own();
}

}  // namespace plimsoll
