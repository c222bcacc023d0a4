#include "ops/optimizer/adafactor_kernels.h"

#include "ops/optimizer/optimizer_simd.h"

// Four passes over the gradient, each shared among threads in a way that does not change the sums: row
// averages, column averages, the update's root mean square, and the update itself.
namespace plimsoll::PLIMSOLL_ISA {
namespace {

constexpr int64_t kRun = 1024;        // f32 sums of so many elements are added up in f64
constexpr int64_t kStripe = 256;      // columns that one thread sums
constexpr int64_t kRowsAtATime = 64;  // rows whose sum is f32

struct Decay {
  double keep, add;
};

template <class P, class G>
Decay decay_of(const Adafactor<P, G>& a) {
  const double add = __builtin_pow(static_cast<double>(a.update.step.step), kAdafactorDecayRate);
  return {1.0 - add, add};
}

template <class P, class G, class Lanes>
Vec clipped(const Adafactor<P, G>& a, Lanes lanes, int64_t at) {
  return lanes.get(a.update.gradient + at) * broadcast(a.update.step.clip_factor);
}

// Sum over one row of what `term(column, lanes)` gives.
template <class Term>
double row_sum(int64_t columns, Term term) {
  double total = 0;
  for (int64_t begin = 0; begin < columns; begin += kRun) {
    Vec sum = zero();
    for_lanes(begin + kRun < columns ? kRun : columns - begin,
              [&](int64_t i, auto lanes) { sum = sum + term(begin + i, lanes); });
    total += static_cast<double>(reduce_add(sum));
  }
  return total;
}

// row = keep * row + add * (mean of g^2 + eps); then the factors (row / mean of all rows)^-1/2.
template <class P, class G>
void average_rows(const Adafactor<P, G>& a, Decay decay) {
  if (a.row == nullptr) {
    a.row_factors[0] = 1.0F;
    return;
  }
  const auto columns = static_cast<double>(a.columns);
  for_chunks(a.rows, 1, a.update.threads, [&](int64_t r, int64_t) {
    const double squares = row_sum(a.columns, [&](int64_t c, auto lanes) {
      const Vec g = clipped(a, lanes, r * a.columns + c);
      return g * g;
    });
    const double mean = squares / columns + kAdafactorEps;
    a.row[r] = static_cast<float>(decay.keep * static_cast<double>(a.row[r]) + decay.add * mean);
  });
  double mean = 0;
  for (int64_t r = 0; r < a.rows; ++r) mean += static_cast<double>(a.row[r]) / static_cast<double>(a.rows);
  for (int64_t r = 0; r < a.rows; ++r)
    a.row_factors[r] = static_cast<float>(__builtin_sqrt(mean / static_cast<double>(a.row[r])));
}

// column = keep * column + add * (mean of g^2 + eps); then the factors column^-1/2.
template <class P, class G>
void average_columns(const Adafactor<P, G>& a, Decay decay) {
  const Vec keep = broadcast(decay.keep);
  const Vec scale = broadcast(decay.add / static_cast<double>(a.rows));
  const Vec floor = broadcast(decay.add * kAdafactorEps);
  for_chunks(a.columns, kStripe, a.update.threads, [&](int64_t begin, int64_t count) {
    alignas(64) float total[kStripe] = {};
    for (int64_t first = 0; first < a.rows; first += kRowsAtATime) {
      const int64_t end = first + kRowsAtATime < a.rows ? first + kRowsAtATime : a.rows;
      alignas(64) float sum[kStripe] = {};
      for (int64_t r = first; r < end; ++r)
        for_lanes(count, [&](int64_t i, auto lanes) {
          const Vec g = clipped(a, lanes, r * a.columns + begin + i);
          lanes.put(sum + i, fma(g, g, lanes.get(sum + i)));
        });
      for (int64_t i = 0; i < kStripe; i += Vec::kWidth) store(total + i, load(total + i) + load(sum + i));
    }
    for_lanes(count, [&](int64_t i, auto lanes) {
      const Vec average = fma(lanes.get(a.column + begin + i), keep, fma(lanes.get(total + i), scale, floor));
      lanes.put(a.column + begin + i, average);
      lanes.put(a.column_factors + begin + i, set1(1.0F) / sqrt(average));
    });
  });
}

// The divisor of the update: its root mean square over the threshold, at least 1.
template <class P, class G>
double excess(const Adafactor<P, G>& a) {
  for_chunks(a.rows, 1, a.update.threads, [&](int64_t r, int64_t) {
    const Vec factor = set1(a.row_factors[r]);
    a.sums[r] = row_sum(a.columns, [&](int64_t c, auto lanes) {
      const Vec u = clipped(a, lanes, r * a.columns + c) * (factor * lanes.get(a.column_factors + c));
      return u * u;
    });
  });
  double squares = 0;
  for (int64_t r = 0; r < a.rows; ++r) squares += a.sums[r];
  const double rms = __builtin_sqrt(squares / static_cast<double>(a.update.count)) / kAdafactorClipThreshold;
  return rms < 1.0 ? 1.0 : rms;
}

// The second moment's factor of the elements [begin, begin + count), which may lie in several rows.
template <class P, class G>
void write_factors(const Adafactor<P, G>& a, int64_t begin, int64_t count, float* factors) {
  for (int64_t done = 0; done < count;) {
    const int64_t r = (begin + done) / a.columns;
    const int64_t c = (begin + done) % a.columns;
    const int64_t run = a.columns - c < count - done ? a.columns - c : count - done;
    const Vec factor = set1(a.row_factors[r]);
    for_lanes(run, [&](int64_t i, auto lanes) {
      lanes.put(factors + done + i, factor * lanes.get(a.column_factors + c + i));
    });
    done += run;
  }
}

template <class P, class G>
void apply(const Adafactor<P, G>& a, double divisor) {
  const WeightUpdate<P, G>& u = a.update;
  const Vec rate = broadcast(u.step.learning_rate / divisor);
  const Vec decay = broadcast(1.0 - u.step.learning_rate * u.step.weight_decay);
  for_chunks(u.count, kRandomChunk, u.threads, [&](int64_t begin, int64_t count) {
    alignas(64) float factors[kRandomChunk];
    write_factors(a, begin, count, factors);
    const Rounder<P> round(random_stream(u, Stream::weight), begin / kRandomChunk);
    for_lanes(count, [&](int64_t i, auto lanes) {
      const Vec step = clipped(a, lanes, begin + i) * lanes.get(factors + i);
      put_weight(u, round, lanes, begin + i, i, fnma(rate, step, lanes.get(u.weight + begin + i) * decay));
    });
  });
}

template <class P, class G>
void update(const Adafactor<P, G>& a) {
  const Decay decay = decay_of(a);
  average_rows(a, decay);
  average_columns(a, decay);
  apply(a, excess(a));
}

}  // namespace

void adafactor(const Adafactor<float, float>& a) { update(a); }
void adafactor(const Adafactor<float, uint16_t>& a) { update(a); }
void adafactor(const Adafactor<uint16_t, float>& a) { update(a); }
void adafactor(const Adafactor<uint16_t, uint16_t>& a) { update(a); }

}  // namespace plimsoll::PLIMSOLL_ISA
