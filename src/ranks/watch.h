// Watches over the processes of a group: when one ends, fails or says nothing for too long, all end.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "ranks/group.h"
#include "ranks/node_link.h"

namespace plimsoll {

struct BoardSlot;

// A page that all ranks of a node have in memory, on which each says how it is, and a thread that reads what others
// say. The first rank of each node sends its slots to the other nodes. A rank that is gone is not waited for: the thread ends this process (`_exit`) with the exit code that the
// failing rank said, else with 5, and the first rank that still lives says why.
class Watch {
 public:
  // Every rank makes one. Throws UsageError where the ranks of a node do not see each other.
  explicit Watch(Group& group);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Machines, or containers, that the ranks run on.
  [[nodiscard]] int nodes() const { return nodes_; }
  // The most ranks on one of them.
  [[nodiscard]] int most_on_a_node() const;
  // The ranks on this one's, in their order.
  [[nodiscard]] std::vector<int> on_this_node() const;
  // Ranks on this machine, and this one's number among them.
  [[nodiscard]] int ranks_here() const;
  [[nodiscard]] int place_here() const;
  // False where nodes get no word of each other: only what mpirun sees ends a run whose rank on another node is gone.
  [[nodiscard]] bool hears_nodes() const { return hears_nodes_; }

  // Seconds that a rank may stay behind one that waits for it.
  void set_silence(double seconds) { silence_ = seconds; }
  // Its message goes to this descriptor, at first that of standard error.
  void speak_to(int descriptor) { voice_ = descriptor; }
  // Words of what the run has and where it stands, for the message of its end.
  void set_last_words(std::function<std::string()> words);

  // Work for its thread before this process ends because of another, which has a short while for it; empty: none.
  void set_before_end(std::function<void()> work);

  // Around every call that waits for others.
  void enters();
  void leaves();
  // While it lives, this rank works by itself, as a save does, and counts as silent only if it is stopped.
  class Busy {
   public:
    explicit Busy(Watch* watch);
    ~Busy();
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

   private:
    Watch* watch_;
  };

  // This rank ends because of an error that the others do not have: they end with its code.
  void fail(ExitCode code) noexcept;
  // All ranks end now, each by itself.
  void ends() noexcept;
  // Until the leading rank has ended: what it prints comes first.
  void wait_for_leader() const;

 private:
  void run();
  // The reason why all end; 0: they do not.
  struct Verdict {
    int code = 0;
    int silent_from = -1;      // rank that is stopped or gone, and says nothing itself
    bool seen_by_all = false;  // not by those of its node alone
    std::string why;           // empty: who failed says so
  };
  Verdict look();
  Verdict look_at(int rank);
  [[nodiscard]] int speaker(const Verdict& verdict) const;
  // Returns true if its process has ended, or does so within that time.
  [[nodiscard]] bool has_ended(int rank, int milliseconds) const;
  [[noreturn]] void end_all(const Verdict& verdict);
  [[noreturn]] void leave(int code);
  [[nodiscard]] BoardSlot& slot(int rank) const;
  [[nodiscard]] bool is_here(int rank) const {
    return node_of_[static_cast<size_t>(rank)] == node_of_[static_cast<size_t>(rank_)];
  }
  void find_nodes(Group& group);
  void open_page(Group& group);
  void connect_nodes(Group& group);
  void send_to_nodes() noexcept;
  void receive_from_nodes();
  [[nodiscard]] bool hears_all() const;

  int rank_, ranks_;
  std::vector<int> node_of_;  // by rank: the first rank on its node
  int nodes_ = 1;
  std::unique_ptr<NodeLink> link_;  // of the first rank of a node, where there are several
  void* board_ = nullptr;
  size_t board_bytes_ = 0;
  std::vector<int> processes_;  // descriptors by rank; -1: this one, or on another node
  std::vector<bool> gone_;
  int parent_ = 0;
  std::atomic<int> voice_ = 2;
  std::atomic<double> silence_;
  std::mutex words_mutex_;
  std::function<std::string()> words_;
  std::function<void()> before_end_;  // with words_mutex_ too
  std::atomic<bool> stops_ = false;
  std::thread thread_;
  std::vector<bool> heard_;  // by first rank of a node: something came from there
  bool hears_nodes_ = true;
};

}  // namespace plimsoll
