// The checksums by which the hub names files: SHA-256 of large ones, git's SHA-1 of a blob of all others.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace plimsoll::hub {

class Digest {
 public:
  enum class Kind : uint8_t { sha256, git_blob };

  // `bytes` of the whole content: git's checksum begins with it.
  Digest(Kind kind, int64_t bytes);
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;
  ~Digest();

  void add(std::string_view piece);
  // In hexadecimal digits; ends the digest.
  [[nodiscard]] std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace plimsoll::hub
