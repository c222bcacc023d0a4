#include "ranks/run_ranks.h"

#include <algorithm>
#include <charconv>
#include <new>
#include <numeric>

#include "base/format.h"

namespace plimsoll {
namespace {

// "3 the text": an exit code, 0 where nothing failed, and what was said.
std::string told(ExitCode code, const std::string& text) {
  return formatted("{} {}", static_cast<int>(code), text);
}

int code_in(const std::string& told) {
  int code = 0;
  std::from_chars(told.data(), told.data() + told.size(), code);
  return code;
}

}  // namespace

RunRanks::Failure RunRanks::failure_of(const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const Error& error) {
    return {std::current_exception(), error.code(), error.what()};
  } catch (const std::bad_alloc&) {
    return {std::current_exception(), ExitCode::does_not_fit, "the system gives no more memory"};
  } catch (const std::exception& error) {
    return {std::current_exception(), ExitCode::stopped, error.what()};
  }
}

std::vector<int> RunRanks::on_node() const {
  if (watch_ != nullptr) return watch_->on_this_node();
  std::vector<int> all(static_cast<size_t>(size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// A rank that failed within other work may have met the others there.
void RunRanks::settle(const Failure& mine) {
  if (mine.own && (failed_together_ || exchanging_)) std::rethrow_exception(mine.own);
  if (any_fails(gather_words({.failed = static_cast<int32_t>(mine.code)})))
    throw_first(gather_texts(group_, told(mine.code, mine.text)), mine);
}

// Every meeting begins with words, so that a rank that fails is understood wherever the others meet next.
std::vector<RankWord> RunRanks::gather_words(const RankWord& mine) {
  std::vector<RankWord> words(static_cast<size_t>(size()));
  words[static_cast<size_t>(group_.rank())] = mine;
  group_.all_gather(std::as_writable_bytes(std::span(words)));
  return words;
}

bool RunRanks::any_fails(const std::vector<RankWord>& words) {
  return std::ranges::any_of(words, [](const RankWord& word) { return word.failed != 0; });
}

void RunRanks::after_failure(const std::function<void()>& work) {
  failed_together_ = false;
  const Failure failure = failure_of(work);
  failed_together_ = true;
  if (failure.own) std::rethrow_exception(failure.own);
}

void RunRanks::throw_first(const std::vector<std::string>& texts, const Failure& mine) {
  failed_together_ = true;
  const auto first = std::ranges::find_if(texts, [](const std::string& text) { return code_in(text) != 0; });
  const auto rank = static_cast<int>(first - texts.begin());
  if (rank == group_.rank() && mine.own) std::rethrow_exception(mine.own);
  throw Error(static_cast<ExitCode>(code_in(*first)),
              formatted("rank {}: {}", rank, first->substr(first->find(' ') + 1)));
}

std::string RunRanks::by_leader(const std::function<std::string()>& work) {
  if (is_alone()) return work();
  std::string text;
  together([&] {
    const Watch::Busy busy(watch_);
    if (leads()) text = work();
  });
  return broadcast_text(group_, text);
}

void RunRanks::require_same(const RankFacts& facts) {
  if (is_alone()) return;
  settle({});
  std::string mine;
  for (const auto& [name, value] : facts) mine += formatted("{}\t{}\n", name, value);
  const std::vector<std::string> all = gather_texts(group_, mine);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all.front()) continue;
    failed_together_ = true;
    const auto differs =
        static_cast<size_t>(std::ranges::mismatch(all.front(), all[rank]).in1 - all.front().begin());
    const size_t end_before = all.front().substr(0, differs).rfind('\n');
    const size_t begin = end_before == std::string::npos ? 0 : end_before + 1;
    const std::string name = all.front().substr(begin, all.front().find('\t', begin) - begin);
    const auto value_of = [&](const std::string& text) {
      const size_t at = begin + name.size() + 1;
      return text.substr(at, text.find('\n', at) - at);
    };
    throw UsageError(formatted(
        "devices: rank {} has another {} than rank 0: {}, and {} there. All processes of a run need the same "
        "program, recipe and files",
        rank, name, value_of(all[rank]), value_of(all.front())));
  }
}

RankWord RunRanks::meet(const RankWord& mine) {
  if (is_alone()) return mine;
  const std::vector<RankWord> words = gather_words(mine);
  if (any_fails(words)) throw_first(gather_texts(group_, told(static_cast<ExitCode>(mine.failed), "")), {});
  busy_.clear();
  for (const RankWord& word : words) busy_.push_back(word.busy);
  RankWord all = words.front();
  for (const RankWord& word : words) {
    all.stops |= word.stops;
    all.saves |= word.saves;
    if (word.rows == all.rows) continue;
    failed_together_ = true;
    throw StoppedError(
        "devices: the ranks have other rows for this step: the data changed while the run read it");
  }
  return all;
}

void RunRanks::fail(ExitCode code, const std::string& text) {
  if (is_alone() || exchanging_ || failed_together_) return;
  gather_words({.failed = static_cast<int32_t>(code)});
  gather_texts(group_, told(code, text));
  failed_together_ = true;
}

RunRanks& no_other_ranks() {
  static RunRanks ranks(alone());
  return ranks;
}

}  // namespace plimsoll
