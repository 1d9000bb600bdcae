#include "comm/watch_mail.hpp"

#include <algorithm>
#include <string_view>
#include <type_traits>

namespace convnet {
namespace {

static_assert(std::is_trivially_copyable_v<Place>);

void copy_name(std::string_view name, std::array<char, Place::kLongestName>& target) {
  std::ranges::copy(name.substr(0, target.size() - 1), target.begin());  // the rest stays 0
}

bool is_done(MPI_Request& request) {
  int done = 0;
  check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
  return done != 0;
}

}  // namespace

Place place_of(const Progress::Mark& mark, std::chrono::milliseconds age) {
  Place place{.step = mark.step, .age = age};
  copy_name(mark.phase, place.phase);
  copy_name(mark.call == nullptr ? "" : mark.call, place.call);
  return place;
}

WatchMail::~WatchMail() {
  if (is_unwinding()) {
    [[maybe_unused]] const std::list<Sent>* lost = under_way_.release();
  }
}

void WatchMail::send(int receiver, Letter letter, const Place& place) {
  Sent& sent = under_way_->emplace_back(Sent{place});
  check(MPI_Isend(&sent.place, sizeof(Place), MPI_BYTE, receiver, static_cast<int>(letter), communicator_,
                  &sent.request),
        "MPI_Isend");
}

std::optional<Received> WatchMail::receive() {
  int arrived = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  check(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, communicator_, &arrived, &message, &status), "MPI_Improbe");
  if (arrived == 0) {
    std::erase_if(*under_way_, [](Sent& sent) { return is_done(sent.request); });
    return std::nullopt;
  }
  Received received{.sender = status.MPI_SOURCE, .letter = static_cast<Letter>(status.MPI_TAG)};
  check(MPI_Mrecv(&received.place, sizeof(Place), MPI_BYTE, &message, &status), "MPI_Mrecv");
  return received;
}

}  // namespace convnet
