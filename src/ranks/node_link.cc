#include "ranks/node_link.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <sstream>

#include "base/error.h"

namespace plimsoll {
namespace {

constexpr size_t kMostBytes = 65000;  // of a datagram
constexpr int kMostAtOnce = 4096;     // datagrams

sockaddr_in place(uint32_t address, uint16_t port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = address;
  to.sin_port = port;
  return to;
}

// IPv4 addresses of this node's networks, its own loopback left out.
std::vector<std::string> own_addresses() {
  std::vector<std::string> found;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return found;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    if ((each->ifa_flags & IFF_UP) == 0 || (each->ifa_flags & IFF_LOOPBACK) != 0) continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    const auto* address = reinterpret_cast<const sockaddr_in*>(each->ifa_addr);
    if (inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size()) != nullptr)
      found.emplace_back(text.data());
  }
  freeifaddrs(all);
  return found;
}

}  // namespace

NodeLink::NodeLink() : socket_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
  const sockaddr_in any = place(INADDR_ANY, 0);
  if (socket_ < 0 || bind(socket_, reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0) {
    if (socket_ >= 0) close(socket_);
    throw StoppedError("devices: the system opens no socket by which nodes watch over each other");
  }
}

NodeLink::~NodeLink() { close(socket_); }

std::string NodeLink::address() const {
  sockaddr_in own{};
  socklen_t bytes = sizeof own;
  getsockname(socket_, reinterpret_cast<sockaddr*>(&own), &bytes);
  std::string text = std::to_string(ntohs(own.sin_port));
  for (const std::string& each : own_addresses()) text += " " + each;
  return text;
}

void NodeLink::connect(const std::vector<std::string>& others, uint64_t run) {
  run_ = run;
  for (const std::string& other : others) {
    std::istringstream words(other);
    uint16_t port = 0;
    words >> port;
    for (std::string word; words >> word;)
      if (in_addr address{}; inet_pton(AF_INET, word.c_str(), &address) == 1)
        peers_.push_back({address.s_addr, htons(port)});
  }
}

void NodeLink::send(std::span<const std::byte> bytes) const noexcept {
  std::array<std::byte, kMostBytes> datagram{};
  if (bytes.size() + sizeof run_ > datagram.size()) return;
  std::memcpy(datagram.data(), &run_, sizeof run_);
  std::memcpy(datagram.data() + sizeof run_, bytes.data(), bytes.size());
  for (const Peer& peer : peers_) {
    const sockaddr_in to = place(peer.address, peer.port);
    static_cast<void>(sendto(socket_, datagram.data(), bytes.size() + sizeof run_, MSG_NOSIGNAL,
                             reinterpret_cast<const sockaddr*>(&to), sizeof to));
  }
}

void NodeLink::receive(const std::function<void(std::span<const std::byte>)>& use) {
  std::array<std::byte, kMostBytes> datagram;
  for (int count = 0; count < kMostAtOnce; ++count) {  // others may send without end
    const ssize_t bytes = recv(socket_, datagram.data(), datagram.size(), 0);
    if (bytes < 0) return;
    uint64_t run = 0;
    if (static_cast<size_t>(bytes) < sizeof run) continue;
    std::memcpy(&run, datagram.data(), sizeof run);
    if (run == run_) use(std::span(datagram).subspan(sizeof run, static_cast<size_t>(bytes) - sizeof run));
  }
}

}  // namespace plimsoll
