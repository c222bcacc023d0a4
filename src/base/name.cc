#include "base/name.h"

#include <deque>
#include <mutex>
#include <vector>

namespace plimsoll {

// Open addressing; texts stay where they are.
const Name::Text* Name::stored(std::string_view text) {
  struct Pool {
    std::mutex mutex;
    std::deque<Text> texts;
    // The hash stands next to its text, so that no other text is read on the way.
    struct Slot {
      size_t hash = 0;
      const Text* text = nullptr;
    };
    std::vector<Slot> slots = std::vector<Slot>(1024);

    [[nodiscard]] Slot& slot_of(std::string_view text, size_t hash) {
      size_t at = hash & (slots.size() - 1);
      while (slots[at].text != nullptr && (slots[at].hash != hash || slots[at].text->text != text))
        at = (at + 1) & (slots.size() - 1);
      return slots[at];
    }
    void grow() {
      slots.assign(2 * slots.size(), {});
      for (const Text& known : texts) slot_of(known.text, known.hash) = {known.hash, &known};
    }
  };
  static Pool& pool = *new Pool;  // for names in objects that are destroyed last
  const size_t hash = hash_of(text);
  const std::lock_guard lock(pool.mutex);
  if (const Text* known = pool.slot_of(text, hash).text) return known;
  if (2 * pool.texts.size() >= pool.slots.size()) pool.grow();
  const Text* added = &pool.texts.emplace_back(Text{std::string(text), hash});
  pool.slot_of(text, hash) = {hash, added};
  return added;
}

const Name::Text* Name::none() noexcept {
  static const Text* const text = stored({});
  return text;
}

}  // namespace plimsoll
