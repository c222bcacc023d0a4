#include "fleet/doctor/pickle.h"

#include <charconv>
#include <limits>
#include <unordered_map>

#include "base/error.h"
#include "base/printable.h"

namespace plimsoll::doctor {

// The stack machine that a pickle is a program of, as far as it only puts data together.
class PickleReader {
 public:
  PickleReader(std::string_view bytes, const std::string& name, Pickle& out)
      : bytes_(bytes), name_(name), out_(out) {
    out_.values_.push_back({});  // what is not there
  }

  void run() {
    for (;;) {
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
    throw UsageError(printable(name_) + ": no whole pickle: " + what + " at byte " + std::to_string(at_));
  }
  [[noreturn]] void refuse(unsigned char code) const {
    constexpr std::string_view kObjects = "cRbioPQ\x81\x82\x83\x84\x92\x93";
    if (kObjects.find(static_cast<char>(code)) == kObjects.npos) damaged("an operation that is none");
    throw UsageError(
        printable(name_) + ": byte " + std::to_string(at_ - 1) +
        ": this pickle builds objects or calls functions; only containers, numbers and texts are read");
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

  void push(Kind kind, int64_t number) {
    if (out_.values_.size() >= Pickle::kMostValues)
      throw UsageError(printable(name_) + ": more than " + std::to_string(Pickle::kMostValues) + " values");
    out_.values_.push_back({kind, number});
    stack_.push_back(static_cast<Index>(out_.values_.size() - 1));
  }
  void push_text(std::string_view text) {
    out_.texts_.push_back(text);
    push(Kind::text, static_cast<int64_t>(out_.texts_.size() - 1));
  }
  void push_container(Kind kind, std::vector<Index> items) {
    out_.containers_.push_back(std::move(items));
    push(kind, static_cast<int64_t>(out_.containers_.size() - 1));
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
    const Pickle::Value& value = out_.values_[top()];
    if (value.kind != kind || (kind == Kind::dictionary && items.size() % 2 != 0))
      damaged("items of nothing");
    auto& all = out_.containers_[static_cast<size_t>(value.number)];
    all.insert(all.end(), items.begin(), items.end());
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
        push(Kind::integer, static_cast<int64_t>(little_endian(1)));
        return true;
      case 'M':
        push(Kind::integer, static_cast<int64_t>(little_endian(2)));
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
  bool memo(unsigned char code) {
    switch (code) {
      case 'p':
      case 'q':
      case 'r':
        memo_[code == 'p' ? line_number() : little_endian(code == 'q' ? 1 : 4)] = top();
        return true;
      case 0x94: {
        const Index value = top();
        memo_[memo_.size()] = value;
        return true;
      }
      case 'g':
      case 'h':
      case 'j': {
        const auto found = memo_.find(code == 'g' ? line_number() : little_endian(code == 'h' ? 1 : 4));
        if (found == memo_.end()) damaged("a reference to nothing");
        stack_.push_back(found->second);
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
  std::unordered_map<uint64_t, Index> memo_;
};

Pickle::Pickle(std::string_view bytes, const std::string& name) { PickleReader(bytes, name, *this).run(); }

int64_t Pickle::integer(Index value, int64_t otherwise) const {
  const Value& v = values_[value];
  return v.kind == Kind::integer || v.kind == Kind::boolean ? v.number : otherwise;
}

std::string_view Pickle::text(Index value) const {
  const Value& v = values_[value];
  return v.kind == Kind::text ? texts_[static_cast<size_t>(v.number)] : std::string_view();
}

const std::vector<Pickle::Index>& Pickle::items(Index value) const {
  static const std::vector<Index> kNone;
  const Value& v = values_[value];
  return v.kind == Kind::list || v.kind == Kind::dictionary ? containers_[static_cast<size_t>(v.number)]
                                                            : kNone;
}

Pickle::Index Pickle::at(Index dictionary, std::string_view key) const {
  if (values_[dictionary].kind != Kind::dictionary) return 0;
  const std::vector<Index>& all = items(dictionary);
  const size_t least = all.size() > 2 * kMostKeys ? all.size() - 2 * kMostKeys : 0;
  for (size_t i = all.size(); i >= least + 2; i -= 2)
    if (values_[all[i - 2]].kind == Kind::text && text(all[i - 2]) == key) return all[i - 1];
  return 0;
}

}  // namespace plimsoll::doctor
