#include "hub/digest.h"

#include <nettle/sha1.h>
#include <nettle/sha2.h>

#include <vector>

#include "base/format.h"

namespace plimsoll::hub {

struct Digest::State {
  Kind kind;
  sha256_ctx sha256;
  sha1_ctx sha1;
};

namespace {

const uint8_t* octets(std::string_view text) {
  return reinterpret_cast<const uint8_t*>(text.data());  // NOLINT: nettle's way to take bytes
}

}  // namespace

Digest::Digest(Kind kind, int64_t bytes) : state_(std::make_unique<State>()) {
  state_->kind = kind;
  sha256_init(&state_->sha256);
  sha1_init(&state_->sha1);
  if (kind == Kind::git_blob) {
    const std::string head = formatted("blob {}", bytes) + '\0';
    add(head);
  }
}

Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;
Digest::~Digest() = default;

void Digest::add(std::string_view piece) {
  if (state_->kind == Kind::sha256)
    sha256_update(&state_->sha256, piece.size(), octets(piece));
  else
    sha1_update(&state_->sha1, piece.size(), octets(piece));
}

std::string Digest::hex() {
  std::vector<uint8_t> digest(state_->kind == Kind::sha256 ? SHA256_DIGEST_SIZE : SHA1_DIGEST_SIZE);
  if (state_->kind == Kind::sha256)
    sha256_digest(&state_->sha256, digest.size(), digest.data());
  else
    sha1_digest(&state_->sha1, digest.size(), digest.data());
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const uint8_t octet : digest) {
    text += kDigits[octet >> 4];
    text += kDigits[octet & 15];
  }
  return text;
}

}  // namespace plimsoll::hub
