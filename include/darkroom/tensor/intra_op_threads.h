#pragma once

namespace darkroom {

/// Lets torch's operations on the calling thread run with so many threads while the object lives, then with as many as before: for code in
/// a process that is not ours alone. The number belongs to the thread (OpenMP's setting), but that of matrix products (MKL's) to the
/// process: calls side by side want the same one. Thread safety: made and destroyed by one thread.
class IntraOpThreads {
 public:
  /// REQUIRES: num_threads >= 1.
  explicit IntraOpThreads(int num_threads);
  ~IntraOpThreads();
  IntraOpThreads(const IntraOpThreads&) = delete;
  IntraOpThreads& operator=(const IntraOpThreads&) = delete;

 private:
  const int before_;
};

}  // namespace darkroom
