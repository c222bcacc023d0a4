// plimsoll_bleu_tool: reads a corpus a line, as JSON [[answer, reference], ...], and writes its BLEU a line:
// {"score", "precisions", "brevity_penalty", "answer_words", "reference_words"}. Used by
// scripts/parity_bleu.py.
#include <iostream>
#include <nlohmann/json.hpp>

#include "infer/bleu.h"

int main() {
  using Json = nlohmann::json;
  for (std::string line; std::getline(std::cin, line);) {
    plimsoll::CorpusBleu bleu;
    for (const Json& pair : Json::parse(line))
      bleu.add(pair[0].get<std::string>(), pair[1].get<std::string>());
    const plimsoll::BleuScore score = bleu.score();
    std::cout << Json{{"score", score.score},
                      {"precisions", score.precisions},
                      {"brevity_penalty", score.brevity_penalty},
                      {"answer_words", score.answer_words},
                      {"reference_words", score.reference_words}}
                     .dump()
              << '\n';
  }
}
