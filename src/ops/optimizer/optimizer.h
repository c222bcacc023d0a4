// Operands and attributes that all optimizers' ops have. Each op updates one weight in place, or a slice of
// it:
//
//   step, grad_norm?, gradient -> weight, states ..., master?
//
// Attribute `rate` (f64; absent: 1) times the learning rate is the weight's own.
//
// Attribute `scaled` (int; absent: 0) 1: the gradients carry a loss scale that grad_norm takes off. Where
// they overflowed the op changes nothing, and the step is skipped. (A norm that is no number of gradients
// without a scale changes nothing either, but there the loss is lost, and the run stops without saving.)
//
// Attributes `first` and `elements` (int, counted in elements of the whole weight; absent: all of it) name
// the slice. An operand with exactly as many elements as the slice is the slice itself, fetched from
// elsewhere; a larger one is the whole tensor, and the op works at its offset `first`. Random bits are keyed
// by the element's place in the whole weight, so that slices give the bits of the whole.
//
// Attribute `piece` (int; absent: the weight is not cut): several ranks have pieces of so many elements of the
// weight, the last one perhaps fewer. An op that has `first` and `elements` too works on the piece of one rank,
// and an operand as large as a piece is that rank's (ZeRO stage 1). A program has the first rank's range;
// for_rank() gives it another's.
#pragma once

#include <initializer_list>

#include "ops/operands.h"
#include "ops/rule.h"

namespace plimsoll {

// Slices start at multiples of this: the unit in which sums of squares are added up, a multiple of the blocks
// of 8-bit states and of the chunks of random bits.
inline constexpr int64_t kSliceUnit = 65536;
// Pieces of ranks begin at multiples of this: blocks of 8-bit states and chunks of random bits stay whole.
inline constexpr int64_t kPieceUnit = 256;

// The elements of each rank's piece of a tensor with so many; 0: it is too small to be cut, every rank has all of
// it. No rank's piece is empty.
int64_t piece_elements(int64_t elements, int64_t ranks);
// The program with the ranges of a rank's pieces.
Graph for_rank(Graph program, int64_t rank);

// The name of a weight's f32 master copy is the weight's with this behind it.
inline constexpr const char* kMasterSuffix = ".master";

// Operands of every optimizer op (optimizer.cc holds that they are the same). Without the norm the gradient
// is not clipped.
inline constexpr auto kStepInput = operand::adamw::step;
inline constexpr auto kNormInput = operand::adamw::norm;
inline constexpr auto kGradientInput = operand::adamw::gradient;
inline constexpr auto kWeightOutput = operand::adamw::weight;

// Attribute `scaled`, of optimizers and of grad_norm.
bool is_scaled(const Op& op);

// Attribute `piece`; 0: absent.
int64_t piece_of(const Op& op);

struct ElementRange {
  int64_t first = 0;
  int64_t elements = 0;
};

// The part of the weight that an op updates (or, for grad_square, the part of the gradient in input
// `gradient`).
ElementRange updated_range(const Graph& graph, const Op& op, size_t gradient = kGradientInput);

// The place of that part in an operand that has one value for `block` elements of the weight: its first
// element there, and how many. Throws InternalError when the operand does not hold it.
ElementRange range_in(const Graph& graph, const Op& op, TensorId operand, ElementRange updated,
                      int64_t block = 1);

// Values that the op reads or writes of operands with `block` elements to a value; for costs.
double bytes_of_range(const Graph& graph, TensorId operand, ElementRange updated, int64_t block = 1);

// The output `i` of an optimizer: a new one has the gradient's shape (one dimension if `block` elements share
// a value); one that exists keeps its type, and under a slice its shape, which must hold the updated range.
OutputSpec updated_output(const Graph& graph, const Op& op, size_t i, const char* suffix,
                          DType dtype = DType::f32, int64_t block = 1);

// Attribute stochastic (int) 1: what is bf16 of the weight (without master copy) and of the states is rounded
// stochastically. Rounding those to nearest would lose small updates for good, so that 0 is refused for them.
// A master copy is f32, its weight bf16.
void require_precision(const Graph& graph, const Op& op, std::initializer_list<size_t> states, size_t master);

// Everything is read and written once, but the gradient and (with a master copy) the weight, which have one
// way.
Cost cost_of_update(const Graph& graph, const Op& op);

}  // namespace plimsoll
