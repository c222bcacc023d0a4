// plimsoll_tokenize_tool TOKENIZER.json [special]: reads one JSON string a line, writes {"ids": [...],
// "text": ...} a line: the ids and their decoded text. Used by scripts/parity_tokenizer.py.
// plimsoll_tokenize_tool TOKENIZER.json time FILE: encodes the file's lines, prints seconds and bytes as
// JSON.
#include <ctime>
#include <fstream>
#include <iostream>

#include "tokenizer/files/json_part.h"
#include "tokenizer/tokenizer.h"

namespace {

using Json = nlohmann::json;
using plimsoll::Tokenizer;

// Processor time: other programs on the machine do not count.
double seconds_since(std::clock_t start) {
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

void encode_lines(const Tokenizer& tokenizer, bool special) {
  for (std::string line; std::getline(std::cin, line);) {
    const auto ids = tokenizer.encode(Json::parse(line).get<std::string>(), special);
    std::cout << Json{{"ids", ids}, {"text", tokenizer.decode(ids, false)}}.dump() << '\n';
  }
}

void time_file(const std::string& tokenizer_file, const std::string& text_file) {
  const auto start = std::clock();
  const Tokenizer tokenizer = Tokenizer::from_file(tokenizer_file);
  const double load_s = seconds_since(start);
  std::vector<std::string> lines;
  std::ifstream stream(text_file, std::ios::binary);
  size_t bytes = 0;
  for (std::string line; std::getline(stream, line); bytes += line.size() + 1) lines.push_back(line + "\n");
  const auto encode_start = std::clock();
  size_t tokens = 0;
  for (const std::string& line : lines) tokens += tokenizer.encode(line, false).size();
  std::cout << Json{{"load_s", load_s},
                    {"encode_s", seconds_since(encode_start)},
                    {"bytes", bytes},
                    {"tokens", tokens},
                    {"resident_bytes", tokenizer.resident_bytes()},
                    {"estimated_bytes", Tokenizer::estimated_bytes(tokenizer_file)}}
                   .dump()
            << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::vector<std::string> args(argv + 1, argv + argc);
    if (args.size() == 3 && args[1] == "time") {
      time_file(args[0], args[2]);
    } else if (args.size() == 1 || (args.size() == 2 && args[1] == "special")) {
      encode_lines(Tokenizer::from_file(args[0]), args.size() == 2);
    } else {
      std::cerr << "usage: plimsoll_tokenize_tool TOKENIZER.json [special | time FILE]\n";
      return 2;
    }
  } catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 1;
  }
}
