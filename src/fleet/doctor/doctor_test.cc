// Parts of the doctor by themselves; whole logs are in tests/doctor_test.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "base/units.h"
#include "fleet/doctor/expression.h"
#include "fleet/doctor/messages.h"
#include "fleet/doctor/pickle.h"
#include "fleet/doctor/snapshot.h"

namespace plimsoll::doctor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace std::string_literals;

TEST(Literals, overlapping_words_are_all_found) {
  const Literals literals({"he", "she", "hers"});
  std::vector<uint16_t> found;
  Literals::State state = Literals::kStart;
  for (const char c : "ushers"s) {
    state = literals.next(state, c);
    for (const uint16_t word : literals.ending(state)) found.push_back(word);
  }
  EXPECT_THAT(found, ElementsAre(1, 0, 2));
}

TEST(Squeeze, blanks_go_but_between_digits) {
  EXPECT_EQ(squeezed("CUDA  out of\tmemory 1 2 a 3"), "CUDAoutofmemory1 2a3");
}

TEST(Expression, a_size_may_be_broken_by_a_line_break) {
  const Expression expression("has {bytes:size} in use");
  Expression::Groups groups;
  ASSERT_TRUE(expression.match(squeezed("it has 1 1.44 GiB in use"), groups));
  EXPECT_EQ(parse_printed_bytes(groups.at("bytes"))->value, 12283606467);
}

TEST(Expression, gives_up_instead_of_taking_long) {
  const Expression expression("(?: a+ )+ $ b");
  Expression::Groups groups;
  EXPECT_FALSE(expression.match(std::string(3000, 'a'), groups));
}

// A row's are made where its anchor is met, so a fault in one would show in few logs.
TEST(Messages, all_their_expressions_compile) {
  std::set<std::string_view> all;
  for (const MessageRow& row : all_messages()) {
    all.insert(row.needs);
    all.insert(row.fields.begin(), row.fields.end());
  }
  for (const std::string_view text : all) EXPECT_NO_THROW(Expression{text}) << text;
}

TEST(PrintedBytes, stand_for_all_that_rounds_to_them) {
  const auto bytes = parse_printed_bytes("1.05GiB");
  ASSERT_TRUE(bytes);
  EXPECT_EQ(bytes->value, 1127428915);
  EXPECT_EQ(bytes->slack, 5368709);
  EXPECT_EQ(parse_printed_bytes("1048576kB")->slack, 0);
  EXPECT_EQ(parse_printed_bytes("608bytes")->value, 608);
  EXPECT_FALSE(parse_printed_bytes("17179869184.00GiB"));  // no size, but the mark of an unknown one
  EXPECT_FALSE(parse_printed_bytes("71.24%"));
  EXPECT_FALSE(parse_printed_bytes("9001.batch"));
  EXPECT_FALSE(parse_printed_bytes("1.2.3GiB"));
}

TEST(Prefixes, are_taken_off_and_senders_named) {
  const auto text = [](std::string_view line) { return std::string(without_prefixes(line).text); };
  EXPECT_EQ(text("Jan  2 03:04:05 host kernel: [12.5] Out of memory"), " Out of memory");
  EXPECT_EQ(text("2024-01-01T00:00:00.5Z stderr F RuntimeError: x"), "RuntimeError: x");
  EXPECT_EQ(text("W0101 10:00:00.000000 123 file.cc:12] low"), "low");
  EXPECT_EQ(text("RuntimeError: CUDA"), "RuntimeError: CUDA");
  EXPECT_EQ(text("7893421 of 8388608"), "7893421 of 8388608");
  EXPECT_EQ(without_prefixes("[rank3]: x").sender, "[rank3]:");
  EXPECT_EQ(without_prefixes("(Trainer pid=4, ip=10.0.0.1) x").sender, "(Trainer pid=4, ip=10.0.0.1) ");
  EXPECT_EQ(without_prefixes("trainer-1  | x").sender, "trainer-1  | ");
  EXPECT_EQ(without_prefixes("plain 12").sender, "");
}

TEST(LogLines, long_lines_and_pieces_of_input_change_nothing) {
  const std::string log = std::string(200'000, 'a') + "CUDA out of memory\n\nsecond\rredrawn\nlast";
  const auto pieces = [&](size_t chunk) {
    std::string joined;
    int64_t last = 0;
    LogLines lines([&](const LogPiece& piece) {
      joined += piece.text;
      last = piece.line;
    });
    for (size_t at = 0; at < log.size(); at += chunk) lines.feed(std::string_view(log).substr(at, chunk));
    lines.finish();
    return std::make_pair(joined, last);
  };
  const auto whole = pieces(log.size());
  EXPECT_EQ(whole.second, 4);
  EXPECT_THAT(whole.first, HasSubstr("aCUDA out of memorysecondredrawnlast"));
  EXPECT_EQ(pieces(1), whole);
  EXPECT_EQ(pieces(65536), whole);
  EXPECT_EQ(pieces(70000), whole);
}

Diagnosis diagnosed(const std::string& log) {
  LogScanner scanner;
  scanner.feed(log);
  scanner.finish();
  Evidence evidence;
  add_evidence(scanner, "", evidence);
  return diagnose(evidence);
}

TEST(Device, fragmentation_is_ruled_out_by_figures_alone_and_idle_memory_is_no_tensor) {
  const auto judged = [](const std::string& requested, const std::string& idle) {
    return diagnosed(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate " + requested +
        ". GPU 0 has a total capacity of 23.52 GiB of which 0.25 MiB is free. Process 81211 has 3.80 "
        "GiB memory in use. Process 81344 has 11.44 GiB memory in use. Including non-PyTorch memory, "
        "this process has 8.25 GiB memory in use. Of the allocated memory 6.03 GiB is allocated by "
        "PyTorch, and " +
        idle + " is reserved by PyTorch but unallocated.\n");
  };
  const Diagnosis idle = judged("32.00 MiB", "1.70 GiB");
  EXPECT_EQ(idle.cause, Cause::other_processes);
  EXPECT_THAT(idle.reason,
              HasSubstr("this one's tensors 6.03 GiB, and 1.70 GiB that it has reserved lie idle"));
  EXPECT_TRUE(idle.ruled_out.empty());
  ASSERT_EQ(idle.notes.size(), 1u);
  EXPECT_THAT(idle.notes[0], HasSubstr("1.70 GiB lie idle beside the 32.0 MiB that were asked for"));
  EXPECT_THAT(idle.notes[0], HasSubstr("blocks above 1 MiB"));
  EXPECT_THAT(judged("512.00 KiB", "1.70 GiB").notes[0], HasSubstr("blocks of up to 1 MiB"));
  const auto has = [&](const Diagnosis& diagnosis, const std::string& text) {
    return std::any_of(diagnosis.steps.begin(), diagnosis.steps.end(),
                       [&](const Step& step) { return step.command.find(text) != std::string::npos; });
  };
  EXPECT_TRUE(has(idle, "expandable_segments"));
  EXPECT_TRUE(has(idle, "plimsoll queue add --devices 1 --memory 8480MiB"));
  const Diagnosis none = judged("32.00 MiB", "12.00 MiB");
  EXPECT_THAT(none.ruled_out,
              testing::ElementsAre("fragmentation: 12.0 MiB lie idle, and 32.0 MiB were asked for"));
  EXPECT_FALSE(has(none, "expandable_segments"));
}

TEST(Scanner, many_messages_are_counted_and_few_kept) {
  std::string log;
  for (int i = 0; i < 5000; ++i)
    log +=
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity; 7.00 "
        "GiB "
        "already allocated; 1.00 MiB free; 7.10 GiB reserved in total by PyTorch)\n";
  const Diagnosis diagnosis = diagnosed(log);
  ASSERT_TRUE(diagnosis.message);
  EXPECT_EQ(diagnosis.message->count, 5000);
  EXPECT_EQ(diagnosis.message->line, 1);
  EXPECT_EQ(diagnosis.message->last_line, 5000);
}

// Each of 300,000 places would be looked at by several expressions. Equal places are looked at once.
TEST(Scanner, a_log_full_of_the_beginning_of_a_message_is_read_in_linear_time) {
  for (const bool repeats : {true, false}) {
    std::string log;
    for (int i = 0; log.size() < 8'000'000; ++i)
      log += "CUBLAS_STATUS_ALLOC_FAILED" + (repeats ? "" : std::to_string(i));
    LogScanner scanner;
    scanner.feed(log);
    scanner.finish();
    Evidence evidence;
    add_evidence(scanner, "", evidence);
    const Diagnosis diagnosis = diagnose(evidence);
    EXPECT_NE(diagnosis.out_of_memory, Verdict::no);
    const std::string text = diagnosis_text(diagnosis, evidence);
    EXPECT_EQ(evidence.skipped > 100'000, !repeats) << evidence.skipped;
    EXPECT_EQ(text.find(" places that begin like a message") != std::string::npos, !repeats) << text;
  }
}

TEST(Scanner, the_step_and_the_place_come_from_what_stands_before) {
  const Diagnosis diagnosis = diagnosed(
      "{'loss': 1.0, 'step': 41}\n 26%|##  | 1322/5000 [10:00<27:00,  2.27it/s]Traceback (most recent call "
      "last):\n"
      "  File \"a.py\", line 3, in <module>\n    loss.backward()\n"
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB. GPU 1 has a total capacity of "
      "8.00 GiB "
      "of which 1.00 MiB is free.\n");
  ASSERT_TRUE(diagnosis.message);
  EXPECT_EQ(diagnosis.message->step, 1322);
  EXPECT_EQ(diagnosis.message->of_steps, 5000);
  EXPECT_EQ(diagnosis.message->during, "in the backward pass");
  EXPECT_EQ(diagnosis.headline, "out of memory on GPU 1");
}

// Rounded figures at the edge of a comparison must not decide it.
TEST(Rules, rounding_is_not_evidence) {
  Message message;
  const auto gib = [](double value) {
    return Bytes{static_cast<int64_t>(value * static_cast<double>(kGiB)), kGiB / 200};
  };
  message.bytes = {{"tried", gib(8.0)},
                   {"total", gib(8.0)},
                   {"free", gib(7.5)},
                   {"allocated", gib(0.1)},
                   {"unallocated", gib(0.0)}};
  Diagnosis diagnosis;
  diagnose_device(message, diagnosis);
  EXPECT_EQ(diagnosis.cause, Cause::capacity);
  message.bytes["tried"] = gib(8.02);
  diagnose_device(message, diagnosis);
  EXPECT_EQ(diagnosis.cause, Cause::larger_than_device);
}

TEST(Rules, the_only_named_process_may_be_the_run_itself) {
  Message message;
  message.bytes = {{"tried", {kGiB, 0}},
                   {"total", {40 * kGiB, 0}},
                   {"free", {kMiB, 0}},
                   {"allocated", {38 * kGiB, 0}},
                   {"unallocated", {kMiB, 0}}};
  message.holders = {{7, {39 * kGiB, 0}}};
  Diagnosis diagnosis;
  diagnose_device(message, diagnosis);
  EXPECT_EQ(diagnosis.cause, Cause::capacity);
  message.bytes["allocated"] = {8 * kGiB, 0};
  diagnose_device(message, diagnosis);
  EXPECT_EQ(diagnosis.cause, Cause::other_processes);
}

TEST(Report, control_codes_of_a_log_never_come_out) {
  const Diagnosis diagnosis = diagnosed(
      "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB \x07\b\x9b"
      "31m\n");
  const std::string text = diagnosis_text(diagnosis, {});
  for (const char c : text) EXPECT_TRUE(c == '\n' || (c >= ' ' && c != '\x7f')) << static_cast<int>(c);
}

std::string dictionary(const std::string& items) { return "}(" + items + "u"; }
std::string text(const std::string& value) { return "\x8c"s + static_cast<char>(value.size()) + value; }

TEST(PickleReader, plain_data_of_every_protocol) {
  const auto number = [](const std::string& bytes) {
    const Pickle p(bytes, "f");
    return p.integer(p.root());
  };
  EXPECT_EQ(number("I12\n."), 12);
  EXPECT_EQ(number("L-5L\n."), -5);
  EXPECT_EQ(number("\x80\x02K\x07."), 7);
  EXPECT_EQ(number("\x80\x04\x95\0\0\0\0\0\0\0\0\x8a\x08\0\0\0\0\0\x7f\0\0."s), 0x7f0000000000);
  const std::string bytes = dictionary(text("a") + "K\x01" + text("b") + "(K\x02K\x03t") + ".";
  const Pickle pickle(bytes, "f");
  EXPECT_EQ(pickle.integer(pickle.at(pickle.root(), "a")), 1);
  EXPECT_EQ(pickle.items(pickle.at(pickle.root(), "b")).size(), 2U);
  EXPECT_EQ(pickle.kind(pickle.at(pickle.root(), "c")), Pickle::Kind::none);
}

TEST(PickleReader, nothing_is_called_or_imported) {
  for (const std::string bytes : {"cos\nsystem\n(S'true'\ntR.", "\x80\x04\x8c\x02os\x8c\x06system\x93.",
                                  "(ios\nsystem\n.", "\x80\x02]\x81.", "Pid\n.", "\x80\x02\x82\x01."}) {
    try {
      Pickle(bytes, "f");
      ADD_FAILURE() << bytes;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr("only containers, numbers and texts are read"));
    }
  }
}

TEST(PickleReader, damage_is_refused_by_name) {
  for (const std::string bytes : {"", "K", "}", ".", "e.", "h\x05.",
                                  "\x8d\xff\xff\xff\xff\xff\xff\xff\x7f"
                                  "a.",
                                  "(.",
                                  "K\x01"
                                  "a."})
    EXPECT_THROW(Pickle(bytes, "f"), UsageError) << bytes;
}

// A pickle takes at most three times its size in addition to the file itself: one that takes more is not
// PyTorch's.
TEST(PickleReader, takes_little_memory_whatever_it_holds) {
  constexpr size_t kBytes = 8 << 20;
  std::string memo = "]", numbers = "(", empty = "(";
  memo.append(kBytes, '\x94');
  while (numbers.size() < kBytes) numbers += "J\x01\x01\x01\x01";
  empty.append(kBytes, ']');
  for (const std::string& bytes : {std::string(kBytes, '('), memo, "(" + std::string(kBytes, 'N'), empty}) {
    try {
      Pickle(bytes, "f");
      ADD_FAILURE();
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr("times its size"));
    }
  }
  EXPECT_EQ(Pickle(numbers + "l.", "f").items(Pickle(numbers + "l.", "f").root()).size(), (kBytes + 4) / 5);
  EXPECT_THROW(Pickle("]r\xff\xff\xff\x7f.", "f"), UsageError) << "a memo of two billion";
}

TEST(PickleReader, lists_that_grow_in_turn_keep_their_items) {
  std::string bytes = "(]q" + std::string(1, '\0') + "]q\x01";
  for (int i = 0; i < 1000; ++i) {
    bytes += i % 2 == 0 ? std::string("h\0", 2) : "h\x01";
    bytes += std::string("M") + static_cast<char>(i & 255) + static_cast<char>(i >> 8) + "a0";
  }
  const std::string whole = bytes + "l.";
  const Pickle pickle(whole, "f");
  const auto lists = pickle.items(pickle.root());
  ASSERT_EQ(lists.size(), 2U);
  for (size_t list = 0; list < 2; ++list) {
    ASSERT_EQ(pickle.items(lists[list]).size(), 500U);
    for (size_t i = 0; i < 500; ++i)
      EXPECT_EQ(pickle.integer(pickle.items(lists[list])[i]), static_cast<int64_t>(2 * i + list));
  }
}

TEST(Snapshots, a_list_that_holds_itself_ends) {
  const std::string bytes = dictionary(text("segments") +
                                       "]q\x01h\x01"
                                       "a") +
                            ".";
  EXPECT_EQ(read_snapshot(bytes, "f").devices.size(), 1U);
}

}  // namespace
}  // namespace plimsoll::doctor
