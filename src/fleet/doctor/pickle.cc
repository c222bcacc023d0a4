#include "fleet/doctor/pickle.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/error.h"
#include "base/format.h"
#include "base/printable.h"

namespace plimsoll::doctor {

// The stack machine that a pickle is a program of, as far as it only puts data together.
class PickleReader {
 public:
  PickleReader(std::string_view bytes, const std::string& name, Pickle& out)
      : bytes_(bytes), name_(name), out_(out) {
    // Memory that is never touched costs nothing; a vector that moves would hold its values twice.
    const size_t most = std::min(bytes.size(), Pickle::kMostValues) + 1;
    out_.bytes_ = bytes;
    out_.kinds_.reserve(most);
    out_.numbers_.reserve(most);
    out_.containers_.reserve(most);
    out_.items_.reserve(most);
    stack_.reserve(most);
    memo_.reserve(most);
    out_.kinds_.push_back(Kind::none);  // what is not there
    out_.numbers_.push_back(0);
  }

  void run() {
    for (;;) {
      require_little_memory();
      const auto code = static_cast<unsigned char>(take(1)[0]);
      if (code == '.') break;
      if (!scalar(code) && !text(code) && !container(code) && !memo(code) && !other(code)) refuse(code);
    }
    out_.root_ = pop();
  }

 private:
  using Index = Pickle::Index;
  using Kind = Pickle::Kind;

  [[noreturn]] void damaged(const char* what) const {
    throw UsageError(formatted("{}: no whole pickle: {} at byte {}", printable(name_), what, at_));
  }
  [[noreturn]] void refuse(unsigned char code) const {
    constexpr std::string_view kObjects = "cRbioPQ\x81\x82\x83\x84\x92\x93";
    if (kObjects.find(static_cast<char>(code)) == kObjects.npos) damaged("an unknown operation");
    throw UsageError(formatted(
        "{}: byte {}: this pickle builds objects or calls functions; only containers, numbers and texts "
        "are read",
        printable(name_), at_ - 1));
  }

  std::string_view take(size_t count) {
    if (count > bytes_.size() - at_) damaged("it ends in the middle");
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }
  uint64_t little_endian(size_t count) {
    uint64_t value = 0;
    const std::string_view raw = take(count);
    for (size_t i = count; i-- > 0;) value = value << 8U | static_cast<unsigned char>(raw[i]);
    return value;
  }
  std::string_view line() {
    const size_t end = bytes_.find('\n', at_);
    if (end == bytes_.npos) damaged("a line without an end");
    const std::string_view text = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return text;
  }
  uint64_t line_number() {
    const std::string_view digits = line();
    uint64_t value = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), value).ec != std::errc())
      damaged("no number");
    return value;
  }

  // A file of three bytes a value, each of which takes 20, is nothing that PyTorch writes.
  void require_little_memory() const {
    const size_t taken = out_.kinds_.size() * (sizeof(Kind) + sizeof(int64_t)) +
                         out_.containers_.size() * sizeof(Pickle::Container) +
                         (out_.items_.size() + stack_.size() + memo_.size()) * sizeof(Index) +
                         marks_.size() * sizeof(size_t);
    if (taken > std::max(Pickle::kLeastMemory, Pickle::kMostTimes * bytes_.size()))
      throw UsageError(formatted(
          "{}: byte {}: this pickle takes more than {} times its size in memory, as none of PyTorch's does",
          printable(name_), at_, Pickle::kMostTimes));
  }

  void push(Kind kind, int64_t number) {
    if (out_.kinds_.size() >= Pickle::kMostValues)
      throw UsageError(formatted("{}: more than {} values", printable(name_), Pickle::kMostValues));
    out_.kinds_.push_back(kind);
    out_.numbers_.push_back(number);
    stack_.push_back(static_cast<Index>(out_.kinds_.size() - 1));
  }
  // Line numbers and the like come again and again: each is one value.
  void push_small(uint64_t number) {
    Index& known = small_[number];
    if (known == 0) {
      push(Kind::integer, static_cast<int64_t>(number));
      known = stack_.back();
    } else {
      stack_.push_back(known);
    }
  }
  void push_text(std::string_view text) {
    push(Kind::text, ((text.data() - bytes_.data()) << 31U) | static_cast<int64_t>(text.size()));
  }
  void push_container(Kind kind, const std::vector<Index>& items) {
    out_.containers_.push_back({});
    push(kind, static_cast<int64_t>(out_.containers_.size() - 1));
    append(out_.containers_.back(), items);
  }
  // The container that was extended last stands last in items_, and grows there; others move behind it, with
  // twice the room.
  void append(Pickle::Container& to, const std::vector<Index>& items) {
    auto& all = out_.items_;
    const size_t size = to.size + items.size();
    if (to.size == 0) to.begin = static_cast<uint32_t>(all.size());
    const bool is_last = to.begin + to.room == all.size() || to.room == 0;
    if (size > to.room && !is_last) {
      const size_t begin = all.size();
      all.resize(begin + 2 * size);
      std::copy_n(all.begin() + to.begin, to.size, all.begin() + static_cast<std::ptrdiff_t>(begin));
      to.begin = static_cast<uint32_t>(begin);
      to.room = static_cast<uint32_t>(2 * size);
    } else if (size > to.room) {
      all.resize(to.begin + size);
      to.room = static_cast<uint32_t>(size);
    }
    std::copy(items.begin(), items.end(), all.begin() + to.begin + to.size);
    to.size = static_cast<uint32_t>(size);
  }
  Index pop() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) damaged("nothing to take");
    const Index value = stack_.back();
    stack_.pop_back();
    return value;
  }
  Index top() {
    if (stack_.empty()) damaged("nothing to take");
    return stack_.back();
  }
  std::vector<Index> pop_to_mark() {
    if (marks_.empty()) damaged("no mark");
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<Index> items(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return items;
  }
  std::vector<Index> pop_some(size_t count) {
    std::vector<Index> items(count);
    while (count-- > 0) items[count] = pop();
    return items;
  }
  void extend(const std::vector<Index>& items, Kind kind) {
    const Index value = top();
    if (out_.kinds_[value] != kind || (kind == Kind::dictionary && items.size() % 2 != 0))
      damaged("items of nothing");
    append(out_.containers_[static_cast<size_t>(out_.numbers_[value])], items);
  }

  // Two's complement of up to 8 bytes; what is longer is out of the range of sizes and addresses.
  void push_long(uint64_t count) {
    const std::string_view raw = take(count);
    if (count > 8) return push(Kind::integer, std::numeric_limits<int64_t>::max());
    uint64_t value =
        count > 0 && (static_cast<unsigned char>(raw[count - 1]) & 0x80U) != 0 ? ~uint64_t{0} : 0;
    for (size_t i = count; i-- > 0;) value = value << 8U | static_cast<unsigned char>(raw[i]);
    push(Kind::integer, static_cast<int64_t>(value));
  }
  void push_digits(std::string_view digits) {
    if (digits == "00" || digits == "01") return push(Kind::boolean, digits[1] - '0');
    if (digits.ends_with('L')) digits.remove_suffix(1);
    int64_t value = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (read.ec == std::errc::invalid_argument) damaged("no number");
    push(Kind::integer, read.ec == std::errc() ? value : std::numeric_limits<int64_t>::max());
  }

  bool scalar(unsigned char code) {
    switch (code) {
      case 'N':
        push(Kind::none, 0);
        return true;
      case 0x88:
      case 0x89:
        push(Kind::boolean, code == 0x88 ? 1 : 0);
        return true;
      case 'I':
      case 'L':
        push_digits(line());
        return true;
      case 'J':
        push(Kind::integer, static_cast<int32_t>(little_endian(4)));
        return true;
      case 'K':
        push_small(little_endian(1));
        return true;
      case 'M':
        push_small(little_endian(2));
        return true;
      case 0x8a:
        push_long(little_endian(1));
        return true;
      case 0x8b:
        push_long(little_endian(4));
        return true;
      case 'F':
        line();
        push(Kind::real, 0);
        return true;
      case 'G':
        take(8);
        push(Kind::real, 0);
        return true;
      default:
        return false;
    }
  }

  bool text(unsigned char code) {
    switch (code) {
      case 'S':
      case 'V': {
        std::string_view written = line();
        if (code == 'S' && written.size() >= 2) written = written.substr(1, written.size() - 2);
        push_text(written);
        return true;
      }
      case 'U':
      case 'C':
      case 0x8c:
        push_text(take(little_endian(1)));
        return true;
      case 'T':
      case 'B':
      case 'X':
        push_text(take(little_endian(4)));
        return true;
      case 0x8d:
      case 0x8e:
      case 0x96:
        push_text(take(little_endian(8)));
        return true;
      default:
        return false;
    }
  }

  bool container(unsigned char code) {
    switch (code) {
      case ']':
      case ')':
      case 0x8f:
        push_container(Kind::list, {});
        return true;
      case '}':
        push_container(Kind::dictionary, {});
        return true;
      case 'l':
      case 't':
      case 0x91:
        push_container(Kind::list, pop_to_mark());
        return true;
      case 'd': {
        const std::vector<Index> items = pop_to_mark();
        push_container(Kind::dictionary, {});
        extend(items, Kind::dictionary);
        return true;
      }
      case 0x85:
      case 0x86:
      case 0x87:
        push_container(Kind::list, pop_some(code - 0x84U));
        return true;
      case 'a':
        extend(pop_some(1), Kind::list);
        return true;
      case 'e':
      case 0x90:
        extend(pop_to_mark(), Kind::list);
        return true;
      case 's':
        extend(pop_some(2), Kind::dictionary);
        return true;
      case 'u':
        extend(pop_to_mark(), Kind::dictionary);
        return true;
      default:
        return false;
    }
  }
  // Picklers number what they remember one by one.
  void remember(uint64_t number) {
    constexpr uint64_t kMostLeftOut = 1024;
    if (number > memo_.size() + kMostLeftOut) damaged("a number of the memo far beyond the others");
    if (number >= memo_.size()) memo_.resize(number + 1, kNothing);
    memo_[number] = top();
  }

  bool memo(unsigned char code) {
    switch (code) {
      case 'p':
      case 'q':
      case 'r':
        remember(code == 'p' ? line_number() : little_endian(code == 'q' ? 1 : 4));
        return true;
      case 0x94:
        remember(memo_.size());
        return true;
      case 'g':
      case 'h':
      case 'j': {
        const uint64_t number = code == 'g' ? line_number() : little_endian(code == 'h' ? 1 : 4);
        if (number >= memo_.size() || memo_[number] == kNothing) damaged("a reference to nothing");
        stack_.push_back(memo_[number]);
        return true;
      }
      default:
        return false;
    }
  }

  bool other(unsigned char code) {
    switch (code) {
      case 0x80:
        if (little_endian(1) > 5) damaged("a protocol above 5");
        return true;
      case 0x95:
        take(8);
        return true;
      case '(':
        marks_.push_back(stack_.size());
        return true;
      case '0':
        pop();
        return true;
      case '1':
        pop_to_mark();
        return true;
      case '2':
        stack_.push_back(top());
        return true;
      default:
        return false;
    }
  }

  std::string_view bytes_;
  std::string name_;
  Pickle& out_;
  size_t at_ = 0;
  std::vector<Index> stack_;
  std::vector<size_t> marks_;
  static constexpr Index kNothing = std::numeric_limits<Index>::max();
  std::vector<Index> memo_;
  std::vector<Index> small_ = std::vector<Index>(1 << 16);  // the values of numbers of two bytes; 0: none yet
};

Pickle::Pickle(std::string_view bytes, const std::string& name) { PickleReader(bytes, name, *this).run(); }

int64_t Pickle::integer(Index value, int64_t otherwise) const {
  return kinds_[value] == Kind::integer || kinds_[value] == Kind::boolean ? numbers_[value] : otherwise;
}

std::string_view Pickle::text(Index value) const {
  if (kinds_[value] != Kind::text) return {};
  const auto place = static_cast<uint64_t>(numbers_[value]);
  return bytes_.substr(place >> 31U, place & ((uint64_t{1} << 31U) - 1));
}

std::span<const Pickle::Index> Pickle::items(Index value) const {
  if (kinds_[value] != Kind::list && kinds_[value] != Kind::dictionary) return {};
  const Container& found = containers_[static_cast<size_t>(numbers_[value])];
  return std::span(items_).subspan(found.begin, found.size);
}

Pickle::Index Pickle::at(Index dictionary, std::string_view key) const {
  if (kinds_[dictionary] != Kind::dictionary) return 0;
  const std::span<const Index> all = items(dictionary);
  const size_t least = all.size() > 2 * kMostKeys ? all.size() - 2 * kMostKeys : 0;
  for (size_t i = all.size(); i >= least + 2; i -= 2)
    if (kinds_[all[i - 2]] == Kind::text && text(all[i - 2]) == key) return all[i - 1];
  return 0;
}

}  // namespace plimsoll::doctor
