// libevent, which is linked whole, needs these functions, and glibc has them since 2.36: with them in the
// program it starts with glibc 2.35 (scripts/bundle.py looks). Nothing here calls what needs them, which is
// DNS.
#include <sys/random.h>

#include <cstddef>
#include <cstdint>

extern "C" {

void arc4random_buf(void* bytes, size_t count) {
  auto* at = static_cast<unsigned char*>(bytes);
  while (count > 0) {
    const ssize_t got = getrandom(at, count, 0);
    if (got <= 0) continue;
    at += got;
    count -= static_cast<size_t>(got);
  }
}

uint32_t arc4random() {
  uint32_t value = 0;
  arc4random_buf(&value, sizeof value);
  return value;
}

}  // extern "C"
