#include "infer/answer_file.h"

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "base/units.h"

namespace plimsoll {
void require_apart(const std::optional<std::filesystem::path>& out,
                   const std::vector<std::filesystem::path>& read) {
  namespace fs = std::filesystem;
  std::error_code failed;
  if (!out || !fs::is_regular_file(*out, failed)) return;
  const auto require = [&](const fs::path& file) {
    if (fs::equivalent(*out, file, failed))
      throw UsageError(formatted("--out: {} is {}, which this command reads; name another file",
                                 out->string(), file.string()));
  };
  for (const fs::path& path : read) {
    require(path);
    if (!fs::is_directory(path, failed)) continue;
    for (fs::directory_iterator at(path, failed), end; !failed && at != end; at.increment(failed))
      require(at->path());
  }
}

OutLines::OutLines(const std::optional<std::filesystem::path>& path) {
  if (!path) return;
  path_ = *path;
  file_.open(path_, std::ios::binary | std::ios::trunc);
  if (!file_) throw UsageError(formatted("--out: {} cannot be written", path_.string()));
}

void OutLines::write(const nlohmann::ordered_json& line) {
  if (path_.empty()) return;
  // Texts may hold bytes that are no UTF-8 (a data file's): they become U+FFFD.
  const std::string text = line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  if (!(file_ << text << std::endl))
    throw StoppedError(formatted("--out: {} cannot be written (disk full?)", path_.string()));
}

void AnswerFile::write(const Question& question, const Answer& answer) {
  nlohmann::ordered_json line = {{"prompt", question.prompt}, {"response", answer.text}};
  if (question.expected) line["expected"] = *question.expected;
  line["ended_by"] = to_string(answer.end);
  if (answer.score) line["score"] = *answer.score;
  for (const Answer& next : answer.next)
    line["next_best"].push_back(
        {{"response", next.text}, {"ended_by", to_string(next.end)}, {"score", next.score.value_or(0)}});
  lines_.write(line);
}

void AnswerTally::add(const Question& question, const Answer& answer) {
  rows += 1;
  tokens += static_cast<int64_t>(answer.ids.size());
  if (!question.expected) return;
  expected += 1;
  exact += trim(answer.text) == trim(*question.expected) ? 1 : 0;
  bleu.add(answer.text, *question.expected);
}

AnswerTally answer_all(Answerer& answerer, const std::vector<Question>& questions,
                       const std::optional<std::filesystem::path>& out, RunObserver& observer) {
  AnswerFile file(out);
  AnswerTally tally;
  const auto start = std::chrono::steady_clock::now();
  for (const Question& question : questions) {
    const Answer answer = answerer.answer(question.ids, tally.rows);
    tally.add(question, answer);
    file.write(question, answer);
    observer.answering(tally.rows, static_cast<int64_t>(questions.size()));
  }
  tally.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return tally;
}

std::string exact_match_text(const AnswerTally& tally) {
  char share[32];
  std::snprintf(share, sizeof share, "%.1f %%",
                100.0 * static_cast<double>(tally.exact) / static_cast<double>(tally.expected));
  return formatted("{} ({} of {})", share, format_count(tally.exact), format_count(tally.expected));
}

}  // namespace plimsoll
