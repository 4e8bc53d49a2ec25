// Holds: cost and slots that checks hold under a lease, until the lease is settled, released or expires.
//
// Safe for concurrent use. How many leases may be open, and which ended ones are remembered, says Leases.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>

#include "engine/aftermath.h"
#include "engine/cells.h"
#include "engine/leases.h"
#include "engine/request.h"
#include "engine/waiting_room.h"

namespace headgate::engine {

// kReturned: a caller gives back what it states, which policies with `holds: false` keep. kUndo: a check that was
// charged is denied after all, so no policy keeps anything.
enum class GiveBack : std::uint8_t { kReturned, kUndo };

class Holds {
 public:
  struct Parts {
    Clock& clock;
    Cells& cells;
    Aftermath& aftermath;
    WaitingRoom& room;           // what is given back kicks its lines
    std::function<void()> wake;  // may be empty: after a kick from another thread
  };
  Holds(std::size_t max_leases, const Parts& parts)
      : clock_(parts.clock),
        cells_(parts.cells),
        aftermath_(parts.aftermath),
        room_(parts.room),
        wake_(parts.wake),
        leases_(max_leases) {}

  // `owner` is the agent that the caller speaks for; empty: any caller that knows the lease.
  [[nodiscard]] Result<Settled> settle(std::string_view lease, std::string_view owner, std::span<const Cost> actual);
  [[nodiscard]] Result<Settled> release(std::string_view lease, std::string_view owner);
  // Until when it holds now, by the wall clock.
  [[nodiscard]] Result<Nanos> renew(std::string_view lease, std::string_view owner);
  [[nodiscard]] std::size_t open() const noexcept { return leases_.open(); }

  // A further lease would be refused, in all or of this owner.
  [[nodiscard]] bool full(std::string_view owner) { return leases_.full(owner); }
  // Opens the lease `decision.lease` on what the check was charged; leaves it empty where nothing can be given back.
  // False: there are too many, the charge is undone and the check denied.
  [[nodiscard]] bool take(const Request& request, const ChargeList& list, const Answered& answered,
                          CheckDecision& decision);
  [[nodiscard]] Result<Settled> end(std::string_view lease, std::string_view owner, GiveBack what);
  void expire(Nanos now);
  // kMaxTime: none is open. One relaxed load.
  [[nodiscard]] Nanos next_expiry() const noexcept { return leases_.next_expiry(); }

 private:
  struct Found {
    std::shared_ptr<Lease> open;  // nullptr: it has ended
    Settled settled;              // then
  };
  [[nodiscard]] Result<Found> find(std::string_view id, std::string_view owner, Nanos now,
                                   std::unique_lock<std::mutex>& guard);
  // Charges or refunds the difference; returns what did not fit.
  double settle_part(const Held& held, double actual, Nanos now, Nanos wall, LeaseId slot);
  // What policies with `holds: false` keep is charged, whatever was used.
  static void count_final(const Lease& lease, Settled& settled);
  void give_back(const Lease& lease, Nanos now, GiveBack what);
  void release_slot(const Held& held, LeaseId slot, Nanos now);
  void refund_held(const Held& held, const store::Charge& charge, Nanos now, Nanos wall);
  // A remote store gives back later: a line that is tried before that finds no room, and nothing would try it again.
  [[nodiscard]] store::RemoteStore::Told kick_when_told(const base::Hash128& cell);

  Clock& clock_;
  Cells& cells_;
  Aftermath& aftermath_;
  WaitingRoom& room_;
  std::function<void()> wake_;
  Leases leases_;
};

}  // namespace headgate::engine
