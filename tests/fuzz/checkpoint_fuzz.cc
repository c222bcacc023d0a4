// trainer_state.json, the manifest of a checkpoint, and the fingerprint in it.
#include "fuzz/target.h"
#include "recipe/effective.h"
#include "runs/trainer_state.h"

using namespace plimsoll;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  TrainerState state;
  if (!accepted([&] { state = parse_trainer_state(text_of(data, size), "trainer_state.json"); })) return 0;
  check_internal(state.step >= 0 && state.position.epoch >= 0 && state.position.index >= 0 &&
                     state.micro_batch > 0 && state.loss_chunk > 0,
                 "a checkpoint that cannot be");
  TrainerState again;
  check_internal(accepted([&] { again = parse_trainer_state(to_text(state), "again.json"); }),
                 "a written state is refused");
  check_internal(to_text(again) == to_text(state), "a state reads back as another one");
  accepted([&] { experiment_differences(state.fingerprint, R"({"optimizer.lr":0.001,"seed":42})"); });
  return 0;
}
