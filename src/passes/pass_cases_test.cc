// Passes as text: tests/passes/NAME.txt holds what a pass is given and what it leaves.
// `PLIMSOLL_GOLDEN=write` writes anew what they leave; what has changed is then reviewed like code.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "base/strings.h"
#include "ops/rule.h"
#include "passes/pipeline.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

const fs::path kFolder = "tests/passes";

// `pass NAME key=value ...`, then the graph before, `becomes`, and the graph after.
struct PassCase {
  std::string file;
  std::string about;  // the lines of comments above it
  std::string head;
  std::string before, after;
};

void PrintTo(const PassCase& c, std::ostream* out) { *out << c.file << ": " << c.head; }

std::vector<PassCase> read_cases(const fs::path& path) {
  std::ifstream in(path);
  std::vector<PassCase> cases;
  std::string about;
  bool becomes = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("#")) {
      about += line + "\n";
    } else if (line.starts_with("pass ")) {
      cases.push_back({path.stem(), std::move(about), line, "", ""});
      about.clear();
      becomes = false;
    } else if (line == "becomes") {
      becomes = true;
    } else if (!line.empty()) {
      (becomes ? cases.back().after : cases.back().before) += line + "\n";
    }
  }
  return cases;
}

std::vector<PassCase> all_cases() {
  std::set<fs::path> files;
  for (const auto& entry : fs::directory_iterator(kFolder)) files.insert(entry.path());
  std::vector<PassCase> all;
  for (const fs::path& file : files)
    for (PassCase& one : read_cases(file)) all.push_back(std::move(one));
  return all;
}

// The request to a program's passes, by the words of a case's first line.
class Requested {
 public:
  explicit Requested(const std::string& head) {
    std::istringstream words(head);
    std::string word;
    words >> word >> name;
    while (words >> word) {
      const size_t equals = word.find('=');
      values_[word.substr(0, equals)] = word.substr(equals + 1);
    }
    context.purpose = purpose();
    context.device = &device_;
    context.noise = number("noise", 0);
    context.reference = values_.erase("reference") > 0;
    read_method();
    read_recompute();
    read_offload();
    context.optimizer.max_grad_norm = number("clip", 0);
    context.optimizer.kind = find_optimizer(text("optimizer", "adamw"))->kind;
    context.keep_frozen = values_.erase("keep-frozen") > 0;
    context.precision.tf32 = values_.erase("tf32") > 0;
    context.sharding = {count("ranks", 1),
                        name == "gather-weights" ? ShardStage::weights : ShardStage::gradients};
    context.update_in_backward = values_.erase("update-in-backward") > 0;
    for (const auto& [key, value] : values_) ADD_FAILURE() << head << ": nothing reads " << key;
  }
  Requested(const Requested&) = delete;
  Requested& operator=(const Requested&) = delete;

  std::string name;
  PassContext context;

 private:
  std::string text(const std::string& key, const std::string& otherwise) {
    const auto found = values_.find(key);
    if (found == values_.end()) return otherwise;
    const std::string value = found->second;
    values_.erase(found);
    return value;
  }
  double number(const std::string& key, double otherwise) {
    return std::stod(text(key, std::to_string(otherwise)));
  }
  int64_t count(const std::string& key, int64_t otherwise) {
    return std::stoll(text(key, std::to_string(otherwise)));
  }
  Space space(const std::string& key) {
    const std::string value = text(key, "device");
    for (const Space space : {Space::host, Space::disk})
      if (to_string(space) == value) return space;
    return Space::device;
  }
  Purpose purpose() {
    const std::string value = text("for", "train");
    return value == "update" ? Purpose::update : value == "evaluate" ? Purpose::evaluate : Purpose::train;
  }

  void read_method() {
    lora_.r = count("rank", 0);
    lora_.alpha = static_cast<double>(2 * lora_.r);
    lora_.dropout = number("dropout", 0);
    lora_.targets = split(text("targets", "all-linear"), ',');
    if (lora_.r > 0) context.lora = &lora_;
    const std::string frozen = text("frozen", "");
    if (!frozen.empty()) context.frozen = split(frozen, ',');
    const std::string bits = text("nf4", "");
    quantisation_.nested = bits == "nested";
    const bool int8 = text("int8", "") == "yes";
    if (int8) quantisation_.format = WeightFormat::int8;
    if (!bits.empty() || int8) context.quantisation = &quantisation_;
  }

  void read_recompute() {
    const std::string points = text("points", "");
    if (!points.empty())
      for (const std::string& point : split(points, ','))
        context.recompute.layers.push_back(parse_recompute_point(point));
    context.recompute.segment = count("segment", 1);
  }

  void read_offload() {
    OffloadChoice& choice = context.offload;
    choice = {space("states"), space("gradients"), space("weights"), space("activations")};
    choice.prefetch = count("prefetch", 1);
    choice.slice_elements = count("slice", choice.slice_elements);
    choice.smallest_bytes = 64;
    context.transfers.accumulation = count("micro-steps", 1);
  }

  std::map<std::string, std::string> values_;
  DeviceDescription device_ = reference_description();
  LoraOptions lora_;
  QuantiseOptions quantisation_;
};

// Between the first pass that moves tensors off the device and slice-updates, updates compute on tensors that are elsewhere.
bool computes_on_offloaded(const Pass& pass, const PassContext& context) {
  return context.purpose == Purpose::update && (pass.offloaded || pass.id == PassId::slice_updates);
}

std::string left_by(const PassCase& c) {
  const Requested requested(c.head);
  const Pass* pass = find_pass(requested.name);
  if (pass == nullptr) {
    ADD_FAILURE() << c.file << ": there is no pass " << requested.name;
    return "";
  }
  EXPECT_TRUE(pass->applies(requested.context));
  const Graph before = parse_graph(c.before);
  if (!computes_on_offloaded(*pass, requested.context)) verify(before);
  const Graph after = pass->run(before, requested.context);
  if (!pass->offloaded || !computes_on_offloaded(*pass, requested.context)) verify(after);
  return print_graph(after);
}

std::string text_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

bool writes() {
  const char* golden = std::getenv("PLIMSOLL_GOLDEN");
  return golden != nullptr && std::string_view(golden) == "write";
}

class PassCases : public ::testing::TestWithParam<PassCase> {};

TEST_P(PassCases, a_pass_leaves_the_graph_that_its_case_says) {
  const PassCase& c = GetParam();
  EXPECT_EQ(print_graph(parse_graph(c.before)), c.before) << "the graph before is not written as graphs are";
  const std::string after = left_by(c);
  EXPECT_NE(after, c.before) << "the pass did nothing";
  if (!writes()) {
    EXPECT_EQ(after, c.after);
  }
  EXPECT_EQ(print_graph(parse_graph(after)), after);
}

INSTANTIATE_TEST_SUITE_P(All, PassCases, ::testing::ValuesIn(all_cases()),
                         [](const auto& info) { return "case_" + std::to_string(info.index); });

TEST(PassCasesCoverage, every_pass_of_the_table_has_a_case) {
  std::vector<std::string> names;
  for (const PassCase& c : all_cases()) names.push_back(Requested(c.head).name);
  for (const Pass& pass : passes())
    EXPECT_NE(std::find(names.begin(), names.end(), pass.name), names.end()) << "no case for " << pass.name;
}

TEST(PassCasesGolden, files_are_as_they_would_be_written_anew) {
  std::map<std::string, std::string> files;
  for (const PassCase& c : all_cases())
    files[c.file] +=
        (files[c.file].empty() ? "" : "\n") + c.about + c.head + "\n" + c.before + "becomes\n" + left_by(c);
  for (const auto& [name, text] : files) {
    const fs::path path = kFolder / (name + ".txt");
    if (writes()) std::ofstream(path) << text;
    EXPECT_EQ(text_of(path), text) << path;
  }
}

}  // namespace
}  // namespace plimsoll
