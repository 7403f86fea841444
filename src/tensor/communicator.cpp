#include "darkroom/tensor/communicator.h"

#include <cstring>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

class LoneRank final : public Communicator {
 public:
  int64_t rank() const override { return 0; }
  int64_t size() const override { return 1; }
  Status exchange(const std::vector<Transfer>& sends, const std::vector<Transfer>& receives) override {
    DARKROOM_CHECK(sends.empty() && receives.empty(), "a lone rank has no peers");
    return {};
  }
  Status all_reduce(const torch::Tensor& /*tensor*/) override { return {}; }
  int64_t bytes_sent() const override { return 0; }
  Result<std::unique_ptr<Communicator>> twin(const std::string& /*name*/) override {
    return std::unique_ptr<Communicator>(std::make_unique<LoneRank>());
  }
  Status finish() override { return {}; }
};

}  // namespace

Communicator& lone_rank() {
  static LoneRank rank;  // Without state.
  return rank;
}

Status broadcast(Communicator& ranks, int64_t root, const torch::Tensor& tensor) {
  if (ranks.rank() != root) {
    return ranks.exchange({}, {{root, tensor}});
  }
  std::vector<Transfer> sends;
  for (int64_t peer = 0; peer < ranks.size(); ++peer) {
    if (peer != root) {
      sends.push_back({peer, tensor});
    }
  }
  return ranks.exchange(sends, {});
}

Result<std::string> broadcast_text(Communicator& ranks, int64_t root, const std::string& text) {
  const torch::Tensor length = torch::full({1}, static_cast<int64_t>(text.size()), torch::kInt64);
  DARKROOM_RETURN_IF_ERROR(broadcast(ranks, root, length));
  torch::Tensor bytes = torch::empty({length.item<int64_t>()}, torch::kUInt8);
  if (ranks.rank() == root) {
    std::memcpy(bytes.data_ptr(), text.data(), text.size());
  }
  DARKROOM_RETURN_IF_ERROR(broadcast(ranks, root, bytes));
  return std::string(static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.numel()));
}

Status all_gather(Communicator& ranks, const std::vector<torch::Tensor>& parts) {
  DARKROOM_CHECK(static_cast<int64_t>(parts.size()) == ranks.size(), "a part a rank is gathered (parts):", parts.size());
  std::vector<Transfer> sends, receives;
  for (int64_t peer = 0; peer < ranks.size(); ++peer) {
    if (peer != ranks.rank()) {
      sends.push_back({peer, parts[static_cast<size_t>(ranks.rank())]});
      receives.push_back({peer, parts[static_cast<size_t>(peer)]});
    }
  }
  return ranks.exchange(sends, receives);
}

Result<std::vector<int64_t>> gather_numbers(Communicator& ranks, int64_t own) {
  const torch::Tensor numbers = torch::full({ranks.size()}, own, torch::kInt64);
  DARKROOM_RETURN_IF_ERROR(all_gather(ranks, numbers.split(1)));
  const auto* first = numbers.const_data_ptr<int64_t>();
  return std::vector<int64_t>(first, first + numbers.numel());
}

}  // namespace darkroom
