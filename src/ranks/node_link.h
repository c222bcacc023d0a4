// Datagrams between the first ranks of the nodes of a run, in which each says how its ranks are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace plimsoll {

// Datagrams may be lost and come in any order: each says all that there is to say.
class NodeLink {
 public:
  // Opens a socket of this node. Throws StoppedError where the system gives none.
  NodeLink();
  ~NodeLink();
  NodeLink(const NodeLink&) = delete;
  NodeLink& operator=(const NodeLink&) = delete;

  // "PORT ADDRESS ...": where this node may be reached, by one word for each of its networks.
  [[nodiscard]] std::string address() const;
  // The addresses of the other nodes, as they state them. `run`: datagrams of others do not count.
  void connect(const std::vector<std::string>& others, uint64_t run);
  // To every node; never fails.
  void send(std::span<const std::byte> bytes) const noexcept;
  // Passes on what has come.
  void receive(const std::function<void(std::span<const std::byte>)>& use);

 private:
  struct Peer {
    uint32_t address;  // as the network has it
    uint16_t port;
  };
  int socket_ = -1;
  uint64_t run_ = 0;
  std::vector<Peer> peers_;
};

}  // namespace plimsoll
