// Answers as JSON lines, written one by one, so that an interrupted run leaves what it had; and their score
// against the expected ones.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "infer/bleu.h"
#include "infer/questions.h"
#include "runs/observer.h"

namespace plimsoll {

// A file of JSON lines that --out names.
class OutLines {
 public:
  // Without a path nothing is written. Throws UsageError where the file cannot be.
  explicit OutLines(const std::optional<std::filesystem::path>& path);
  // Throws StoppedError on a full disk.
  void write(const nlohmann::ordered_json& line);

 private:
  std::filesystem::path path_;
  std::ofstream file_;
};

class AnswerFile {
 public:
  explicit AnswerFile(const std::optional<std::filesystem::path>& path) : lines_(path) {}
  // {"prompt", "response", "expected" where there is one, "ended_by"}, and of a search "score", "next_best".
  void write(const Question& question, const Answer& answer);

 private:
  OutLines lines_;
};

// Throws UsageError where `out` is a file that the command reads: one of `read`, or of a folder among them.
void require_apart(const std::optional<std::filesystem::path>& out,
                   const std::vector<std::filesystem::path>& read);

struct AnswerTally {
  int64_t rows = 0, tokens = 0;
  int64_t expected = 0;  // rows with an expected answer
  int64_t exact = 0;     // of them those answered with it, but for blanks at both ends
  CorpusBleu bleu;       // over them
  double seconds = 0;

  void add(const Question& question, const Answer& answer);
};

// Answers all questions in order.
AnswerTally answer_all(Answerer& answerer, const std::vector<Question>& questions,
                       const std::optional<std::filesystem::path>& out, RunObserver& observer);

// "95.4 % (229 of 240)"
std::string exact_match_text(const AnswerTally& tally);

}  // namespace plimsoll
