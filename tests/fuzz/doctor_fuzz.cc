// A log, as a whole and in pieces: both must say the same.
#include "fleet/doctor/diagnosis.h"
#include "fuzz/target.h"

namespace {

std::string diagnosed(std::string_view log, size_t chunk) {
  namespace doctor = plimsoll::doctor;
  doctor::LogScanner scanner;
  for (size_t at = 0; at < log.size(); at += chunk) scanner.feed(log.substr(at, chunk));
  scanner.finish();
  doctor::Evidence evidence;
  add_evidence(scanner, "", evidence);
  const doctor::Diagnosis diagnosis = doctor::diagnose(evidence);
  return doctor::diagnosis_text(diagnosis, evidence) + doctor::diagnosis_json(diagnosis, evidence);
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view log = plimsoll::text_of(data, size);
  plimsoll::check_internal(diagnosed(log, 7) == diagnosed(log, size + 1), "pieces change the verdict");
  return 0;
}
