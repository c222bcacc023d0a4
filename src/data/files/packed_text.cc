#include "data/files/packed_text.h"

#include <arrow/util/compression.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/shell_word.h"
#include "data/files/arrow_error.h"

namespace plimsoll {
namespace {

constexpr std::string_view kMagic = "\x1F\x8B";

std::shared_ptr<arrow::util::Decompressor> make_decompressor() {
  auto codec = arrow::util::Codec::Create(arrow::Compression::GZIP);
  check_internal(codec.ok(), "Arrow was built without zlib");
  auto made = (*codec)->MakeDecompressor();
  check_internal(made.ok(), "Arrow unpacks no streams of gzip");
  return *std::move(made);
}

DamagedError damaged(const std::filesystem::path& path, const std::string& how) {
  return DamagedError(formatted("{}: {}. Pack or fetch it again; gzip -t {} tests it.", path.string(), how,
                                quoted(path.string())));
}

}  // namespace

PackedText::PackedText(const std::filesystem::path& path)
    : file_(File::open(path)), size_(file_.size()), member_(make_decompressor()) {}
PackedText::PackedText(PackedText&&) noexcept = default;
PackedText& PackedText::operator=(PackedText&&) noexcept = default;
PackedText::~PackedText() = default;

void PackedText::restart() {
  within_member_ = false;
  offset_ = 0;
  used_ = 0;
  input_.clear();
}

bool PackedText::fill() {
  if (used_ < input_.size()) return true;
  input_.resize(static_cast<size_t>(std::min(kInput, size_ - offset_)));
  used_ = 0;
  file_.read(offset_, std::as_writable_bytes(std::span<char>(input_)));
  offset_ += std::ssize(input_);
  return !input_.empty();
}

// Zeros between members, as tapes leave them, are not an error.
bool PackedText::begin_member() {
  const bool first = offset_ == 0;
  while (fill()) {
    used_ = std::min(input_.find_first_not_of('\0', first ? 0 : used_), input_.size());
    if (used_ == input_.size()) continue;
    std::string start = input_.substr(used_, kMagic.size());
    if (start != kMagic.substr(0, start.size()))
      throw damaged(path(), first ? "is not packed by gzip, though its name says so"
                                  : "what follows the packed text is not gzip's");
    if (!member_->Reset().ok()) throw InternalError("zlib does not begin anew");
    within_member_ = true;
    return true;
  }
  if (first) throw damaged(path(), "is empty: not even a text of no rows is packed in it");
  return false;
}

size_t PackedText::read(std::span<char> to) {
  size_t done = 0;
  while (done < to.size()) {
    if (!within_member_ && !begin_member()) break;
    if (!fill()) throw damaged(path(), "is cut off: it ends within what was packed");
    const auto rest = to.subspan(done);
    const auto step = member_->Decompress(std::ssize(input_) - static_cast<int64_t>(used_),
                                          reinterpret_cast<const uint8_t*>(&input_[used_]), std::ssize(rest),
                                          reinterpret_cast<uint8_t*>(rest.data()));
    if (!step.ok()) throw damaged(path(), "is damaged: " + reason_of(step.status()));
    used_ += static_cast<size_t>(step->bytes_read);
    done += static_cast<size_t>(step->bytes_written);
    within_member_ = !member_->IsFinished();
  }
  return done;
}

}  // namespace plimsoll
