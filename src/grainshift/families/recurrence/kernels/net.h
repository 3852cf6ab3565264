// The weights of a layer, packed into panels, and whether they still are what was packed.
//
// A panel belongs to as many units as a step takes at once, all their gates side by side. Knows
// neither steps nor threads.
#pragma once
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "gates.h"
#include "product.h"

struct Sweep {  // one layer in one direction
  int64_t inputs;
  int64_t along, along_recurrent;  // how samples of its matrices go on from column to column
  const float *from_into, *from_recurrent;  // PyTorch's matrices, which may be written to
  void* into;
  void* recurrent;
  const float *bias_in, *bias_recurrent;    // PyTorch's own, read in place; null without bias
};

struct Net {
  int64_t kind, hidden, layers, directions, precision;
  int64_t panels;
  int64_t down;  // how samples go on from row to row
  std::vector<Sweep> sweeps;
  std::vector<void*> held;
  int64_t held_bytes;
  mutable std::atomic<uint64_t> turn{0};
};

inline void* hold(Net& net, int64_t bytes) {
  const bool huge = bytes >= (1 << 20);
  const int64_t unit = huge ? 2 << 20 : 64;
  const int64_t size = (std::max<int64_t>(bytes, 64) + unit - 1) / unit * unit;
  void* memory = std::aligned_alloc(unit, size);
  if (!memory) return nullptr;
#ifdef MADV_HUGEPAGE
  if (huge) madvise(memory, size, MADV_HUGEPAGE);
#endif
  std::memset(memory, 0, size);
  net.held.push_back(memory);
  net.held_bytes += size;
  return memory;
}

inline int64_t panel_bytes(const Net& net, int64_t inputs) {
  const int64_t lines = net.precision == BF16 ? (inputs + 1) / 2 : inputs;
  return lines * WIDTH[net.kind] * static_cast<int64_t>(sizeof(Vec));
}

// The row of PyTorch's matrix that lane `lane` of vector `n` of a panel stands for, or -1.
inline int64_t row_of(const Net& net, int64_t panel, int n, int lane) {
  const bool gated = net.kind <= GRU;
  const int64_t unit = panel * units_of(net.kind) + (gated ? 0 : n * LANES) + lane;
  if (unit >= net.hidden) return -1;
  return gated ? n * net.hidden + unit : unit;
}

inline uint32_t rounded_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if (value != value) return 0x7fc0;
  return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

inline void pack_matrix(const Net& net, const float* matrix, int64_t inputs, void* packed) {
  const int width = WIDTH[net.kind];
  for (int64_t panel = 0; panel < net.panels; ++panel) {
    char* base = static_cast<char*>(packed) + panel * panel_bytes(net, inputs);
    for (int n = 0; n < width; ++n) {
      const float* rows[LANES];
      for (int lane = 0; lane < LANES; ++lane) {
        const int64_t row = row_of(net, panel, n, lane);
        rows[lane] = row < 0 ? nullptr : matrix + row * inputs;
      }
      for (int64_t k = 0; k < inputs; ++k)
        for (int lane = 0; lane < LANES; ++lane) {
          const float value = rows[lane] ? rows[lane][k] : 0.0f;
          if (net.precision == BF16) {
            uint32_t& word = reinterpret_cast<uint32_t*>(base)[(k / 2 * width + n) * LANES + lane];
            word = k % 2 ? (word & 0xffffu) | rounded_bf16(value) << 16 : rounded_bf16(value);
          } else {
            reinterpret_cast<float*>(base)[(k * width + n) * LANES + lane] = value;
          }
        }
    }
  }
}

// Whether one element of PyTorch's matrix is what was packed of it.
inline bool same_element(const Net& net, const float* matrix, int64_t inputs, const void* packed,
                         int64_t row, int64_t k) {
  const bool gated = net.kind <= GRU;
  const int64_t gate = gated ? row / net.hidden : 0, width = WIDTH[net.kind];
  const uint64_t unit = row - gate * net.hidden, units = units_of(net.kind);
  const uint64_t inside = unit & (units - 1);  // a power of two
  const int64_t n = gated ? gate : inside / LANES, lane = inside % LANES;
  const char* base = static_cast<const char*>(packed) + unit / units * panel_bytes(net, inputs);
  const float value = matrix[row * inputs + k];
  uint32_t here, there;
  std::memcpy(&there, &value, 4);
  if (net.precision == BF16) {
    std::memcpy(&here, base + ((k / 2 * width + n) * LANES + lane) * 4, 4);
    return (k % 2 ? here >> 16 : here & 0xffffu) == rounded_bf16(value);
  }
  std::memcpy(&here, base + ((k * width + n) * LANES + lane) * 4, 4);
  return here == there;
}

constexpr int64_t LEAST_SAMPLES = 16, MOST_SAMPLES = 512;

// A step through a matrix that in time meets every place: `about` or a little more, without a
// divisor in common with `size`.
inline int64_t stride_of(int64_t size, int64_t about) {
  int64_t stride = std::max<int64_t>(about, 1);
  while (std::gcd(stride, size) > 1) ++stride;
  return stride % size;
}

// Compares some elements, other ones in each call: what wrote past PyTorch's counters is seen.
inline bool is_stale(const Net& net, int64_t samples) {
  const uint64_t turn = net.turn.fetch_add(1, std::memory_order_relaxed);
  const uint64_t begin = turn * 0x9e3779b97f4a7c15u;  // as good as drawn at random
  const int64_t rows = GATES[net.kind] * net.hidden;
  for (const Sweep& sweep : net.sweeps)
    for (const bool recurrent : {false, true}) {
      const int64_t inputs = recurrent ? net.hidden : sweep.inputs;
      const int64_t along = recurrent ? sweep.along_recurrent : sweep.along;
      const float* matrix = recurrent ? sweep.from_recurrent : sweep.from_into;
      const void* packed = recurrent ? sweep.recurrent : sweep.into;
      int64_t row = (begin >> 40) % rows, k = (begin >> 12 & 0xffffffu) % inputs;
      const int64_t some = std::min(samples, rows * inputs);
      for (int64_t sample = 0; sample < some; ++sample) {
        if (!same_element(net, matrix, inputs, packed, row, k)) return true;
        if ((row += net.down) >= rows) row -= rows;
        if ((k += along) >= inputs) k -= inputs;
      }
    }
  return false;
}

// The bias of one vector of a panel; 0 without one, and in lanes that stand for no unit.
inline Vec bias_of(const Net& net, const float* bias, int64_t panel, int n) {
  if (!bias) return Vec{};
  const bool gated = net.kind <= GRU;
  const int64_t unit = panel * units_of(net.kind) + (gated ? 0 : n * LANES);
  if (unit >= net.hidden) return Vec{};
  return load(bias + (gated ? n * net.hidden : 0) + unit, net.hidden - unit);
}
