#include "infer/score_lines.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace plimsoll {
namespace {

using Json = nlohmann::ordered_json;

std::vector<double> softmax(std::span<const float> scores) {
  const float highest = *std::max_element(scores.begin(), scores.end());
  std::vector<double> values;
  double sum = 0;
  for (const float score : scores) sum += values.emplace_back(std::exp(static_cast<double>(score - highest)));
  for (double& value : values) value /= sum;
  return values;
}

Json name_of(size_t label, const std::vector<std::string>& names) {
  return label < names.size() ? Json(names[label]) : Json(label);
}

// A classifier's answer to one text.
Json answer(std::span<const float> scores, ClassProblem problem, const std::vector<std::string>& names) {
  if (problem == ClassProblem::numbers) return {{"values", scores}};
  if (problem == ClassProblem::one_of) {
    const auto best = std::max_element(scores.begin(), scores.end()) - scores.begin();
    return {{"label", name_of(static_cast<size_t>(best), names)}, {"probabilities", softmax(scores)}};
  }
  Json labels = Json::array();
  std::vector<double> probabilities;
  for (size_t i = 0; i < scores.size(); ++i) {
    probabilities.push_back(1.0 / (1.0 + std::exp(-static_cast<double>(scores[i]))));
    if (scores[i] > 0) labels.push_back(name_of(i, names));
  }
  return {{"labels", labels}, {"probabilities", probabilities}};
}

}  // namespace

void ScoreLines::add(const EffectiveBatch& batch, const MicroBatch& micro, std::span<const float> scores) {
  const auto outputs = static_cast<size_t>(task_.outputs);
  const TaskRule& rule = rule_of(task_.task);
  const auto step = static_cast<size_t>(rule.sequences);
  for (size_t s = 0; s < static_cast<size_t>(micro.live_sequences); s += step) {
    Json line = {{"row", batch.row(micro.sample_in_batch[s])}};
    if (rule.pairs) {
      for (size_t i = 0; i < step; ++i) line[std::string(rule.sequence_names.at(i))] = scores[s + i];
    } else if (rewards_) {
      line["score"] = scores[s];
    } else {
      line.update(answer(scores.subspan(s * outputs, outputs), task_.problem, labels_));
    }
    write_(line);
  }
}

}  // namespace plimsoll
