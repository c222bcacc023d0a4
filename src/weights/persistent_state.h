// The persistent tensors of a layout, wherever they are: in the device's or the host's memory, or on disk.
// Tensors that the host does not reach come and go in pieces, from the disk or by the device's own copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "ops/optimizer/optimizer.h"
#include "runtime/run_memory.h"

namespace plimsoll {

// No program may run during its calls.
class PersistentState {
 public:
  // `rank`: whose pieces the state has, of tensors that ranks divide.
  PersistentState(const ArenaLayout& layout, const Arenas& arenas, int64_t rank = 0)
      : layout_(layout), arenas_(arenas), rank_(rank) {}
  // For layouts that are on the device alone.
  PersistentState(const ArenaLayout& layout, std::byte* device)
      : PersistentState(layout, Arenas{.device = device}) {}

  [[nodiscard]] const std::vector<TableRow>& rows() const { return layout_.persistent; }
  // nullptr when there is no such tensor.
  [[nodiscard]] const TableRow* find(std::string_view name) const { return layout_.find_persistent(name); }
  // The tensor's f32 master copy; nullptr when it has none.
  [[nodiscard]] const TableRow* master_of(const TableRow& row) const {
    return layout_.find_persistent(row.name + kMasterSuffix);
  }

  // True if ranks divide some of the tensors.
  [[nodiscard]] bool has_pieces() const;
  // The elements of the whole tensor that this rank has: all where it is no piece.
  [[nodiscard]] ElementRange range_of(const TableRow& row) const;

  // Returns true if the host reaches the tensor by an address.
  [[nodiscard]] bool in_memory(const TableRow& row) const {
    return row.space == Space::host || (row.space == Space::device && arenas_.apart == nullptr);
  }
  // One of the processes of a node writes the tensors that they have once: writes of others have no effect. But each may
  // write the part of a tensor that it has been given.
  [[nodiscard]] bool is_shared(const TableRow& row) const { return layout_.is_shared(row); }
  [[nodiscard]] bool writes(const TableRow& row) const { return arenas_.writes_shared || !is_shared(row); }

  // The bytes of a tensor in memory; InternalError for another.
  [[nodiscard]] std::span<std::byte> bytes(const TableRow& row) const;

  // The device's own bytes of a tensor on a device that the host does not reach; empty for any other.
  [[nodiscard]] std::span<std::byte> apart(const TableRow& row) const;
  // The device that the host does not reach; nullptr: it reaches it.
  [[nodiscard]] Device* device_apart() const { return arenas_.apart; }

  // Bytes from `start` of the tensor on.
  void read(const TableRow& row, int64_t start, std::span<std::byte> to) const;
  void write(const TableRow& row, int64_t start, std::span<const std::byte> from) const;
  // The same of a part that this process has been given.
  void write_part(const TableRow& row, int64_t start, std::span<const std::byte> from) const;

  // Passes the whole tensor to `use`, or lets it write the whole tensor: at once where it is in memory, else
  // piece by piece through `staging`, in order. Pieces hold whole elements. Of a tensor that ranks divide that is
  // what this rank has, and `start` counts the bytes of the whole tensor.
  using Use = std::function<void(int64_t start, std::span<const std::byte> piece)>;
  using Fill = std::function<void(int64_t start, std::span<std::byte> piece)>;
  void visit(const TableRow& row, std::span<std::byte> staging, const Use& use) const;
  void fill(const TableRow& row, std::span<std::byte> staging, const Fill& fill) const;
  // The same of some elements of the whole tensor, which this rank has.
  void fill(const TableRow& row, ElementRange part, std::span<std::byte> staging, const Fill& fill) const;

 private:
  const ArenaLayout& layout_;
  Arenas arenas_;
  int64_t rank_ = 0;
};

// A small tensor's values in memory: the tensor itself, or a copy of what the host does not reach, or another process
// writes, which flush() writes back.
template <class T>
class ResidentValues {
 public:
  ResidentValues(const PersistentState& state, const TableRow& row) : state_(state), row_(row) {
    if (state.in_memory(row) && state.writes(row)) {
      values_ = {reinterpret_cast<T*>(state.bytes(row).data()), static_cast<size_t>(row.bytes) / sizeof(T)};
      return;
    }
    copy_.resize(static_cast<size_t>(row.bytes) / sizeof(T));
    values_ = copy_;
    state.read(row, 0, std::as_writable_bytes(values_));
  }
  ResidentValues(const ResidentValues&) = delete;
  ResidentValues& operator=(const ResidentValues&) = delete;

  [[nodiscard]] std::span<T> span() const { return values_; }
  // Writes a copy back; what is in memory is written already.
  void flush() const {
    if (!copy_.empty()) state_.write(row_, 0, std::as_bytes(values_));
  }

 private:
  const PersistentState& state_;
  const TableRow& row_;
  std::vector<T> copy_;
  std::span<T> values_;
};

}  // namespace plimsoll
