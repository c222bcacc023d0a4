// Strings that are stored once, however often they are used: names of tensors and modules, which every copy
// of a program repeats.
#pragma once

#include <compare>
#include <concepts>
#include <cstddef>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>

namespace plimsoll {

class Name;
template <class T>
concept TextBesideName = std::convertible_to<const T&, std::string_view> && !std::same_as<T, Name>;

// As large and as cheap to copy as a pointer; equal texts are equal pointers. A stored text stays in memory
// until the process ends. Safe to use from several threads.
class Name {
 public:
  Name() : text_(none()) {}
  Name(std::string_view text) : text_(stored(text)) {}
  Name(const std::string& text) : Name(std::string_view(text)) {}
  Name(const char* text) : Name(std::string_view(text)) {}

  [[nodiscard]] const std::string& text() const { return text_->text; }
  operator const std::string&() const { return text_->text; }
  operator std::string_view() const { return text_->text; }
  [[nodiscard]] size_t hash() const { return text_->hash; }
  [[nodiscard]] static size_t hash_of(std::string_view text) { return std::hash<std::string_view>()(text); }

  [[nodiscard]] bool empty() const { return text().empty(); }
  [[nodiscard]] size_t size() const { return text().size(); }
  [[nodiscard]] const char* c_str() const { return text().c_str(); }
  [[nodiscard]] std::string substr(size_t begin, size_t count = std::string::npos) const {
    return text().substr(begin, count);
  }
  [[nodiscard]] size_t find(std::string_view part, size_t begin = 0) const {
    return text().find(part, begin);
  }
  [[nodiscard]] size_t rfind(std::string_view part) const { return text().rfind(part); }
  [[nodiscard]] bool starts_with(std::string_view part) const { return text().starts_with(part); }
  [[nodiscard]] bool ends_with(std::string_view part) const { return text().ends_with(part); }

  friend bool operator==(const Name& a, const Name& b) { return a.text_ == b.text_; }
  template <TextBesideName T>
  friend bool operator==(const Name& a, const T& b) {
    return a.text() == std::string_view(b);
  }
  // By the alphabet.
  friend std::strong_ordering operator<=>(const Name& a, const Name& b) { return a.text() <=> b.text(); }
  template <TextBesideName T>
  friend std::string operator+(const Name& a, const T& b) {
    return a.text() + std::string(std::string_view(b));
  }
  template <TextBesideName T>
  friend std::string operator+(const T& a, const Name& b) {
    return std::string(std::string_view(a)) + b.text();
  }
  friend std::string operator+(const Name& a, const Name& b) { return a.text() + b.text(); }
  friend std::ostream& operator<<(std::ostream& out, const Name& name) { return out << name.text(); }

 private:
  struct Text {
    std::string text;
    size_t hash = 0;
  };
  static const Text* stored(std::string_view text);
  static const Text* none() noexcept;  // that of no letters, which is not looked up
  const Text* text_;
};

}  // namespace plimsoll
