// The weights of a layer, packed into panels, and whether they still are what was packed.
//
// A panel belongs to as many units as a step takes at once, all their gates side by side. Knows
// neither steps nor threads.
#pragma once
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
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
  mutable std::atomic<int64_t> steps{0};  // that calls have taken
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
  constexpr int64_t vec = sizeof(Vec);
  const int64_t width = WIDTH[net.kind];
  if (net.precision == INT8) return (1 + (inputs + 3) / 4) * width * vec;
  return (net.precision == BF16 ? (inputs + 1) / 2 : inputs) * width * vec;
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

// The byte for a weight, above bytes that already stand for a fraction of a step.
inline uint32_t rounded_int8(float value, float scale, uint32_t below, int64_t part) {
  if (!(scale > 0.0f)) return 0;
  const float fraction = std::ldexp(static_cast<float>(below), -8 * static_cast<int>(part));
  const float steps = value / scale - fraction;
  return static_cast<uint32_t>(std::lrint(std::clamp(steps, -127.0f, 127.0f))) & 0xffu;
}

// What one row of a matrix is divided by in int8; not a number where a weight is not one, so that
// the products are not either.
inline float scale_of(const float* row, int64_t inputs) {
  float most = 0.0f;
  for (int64_t k = 0; k < inputs; ++k) {
    if (!std::isfinite(row[k])) return std::numeric_limits<float>::quiet_NaN();
    most = std::max(most, std::fabs(row[k]));
  }
  return most / 127.0f;
}

// One vector of a panel, and one lane of it: where each element of a row of the matrix lies.
struct Lane {
  int64_t precision, width, n, lane;
  char* base;

  // What one step of a byte stands for, over 2^24: bytes are read where a word's highest lies.
  float& scale() const { return reinterpret_cast<float*>(base)[n * LANES + lane]; }

  void put(int64_t k, float value) const {
    if (precision == BF16) {
      uint32_t& word = reinterpret_cast<uint32_t*>(base)[(k / 2 * width + n) * LANES + lane];
      word = k % 2 ? (word & 0xffffu) | rounded_bf16(value) << 16 : rounded_bf16(value);
    } else if (precision == INT8) {
      uint32_t& word = bytes_at(k);
      const uint32_t below = k % 4 ? word : 0;  // the memory may hold an older packing
      word = below | byte_of(k, value, below) << 8 * (k % 4);
    } else {
      reinterpret_cast<float*>(base)[(k * width + n) * LANES + lane] = value;
    }
  }

  bool holds(int64_t k, float value) const {
    uint32_t here, there;
    if (precision == BF16) {
      std::memcpy(&here, base + ((k / 2 * width + n) * LANES + lane) * 4, 4);
      return (k % 2 ? here >> 16 : here & 0xffffu) == rounded_bf16(value);
    }
    if (precision == INT8)
      return (bytes_at(k) >> 8 * (k % 4) & 0xffu) == byte_of(k, value, bytes_at(k));
    std::memcpy(&here, base + ((k * width + n) * LANES + lane) * 4, 4);
    std::memcpy(&there, &value, 4);
    return here == there;
  }

 private:
  uint32_t& bytes_at(int64_t k) const {
    uint32_t* words = reinterpret_cast<uint32_t*>(base + width * sizeof(Vec));
    return words[(k / 4 * width + n) * LANES + lane];
  }

  uint32_t byte_of(int64_t k, float value, uint32_t word) const {
    const int64_t part = k % 4;
    return rounded_int8(value, std::ldexp(scale(), 24), word & ((1u << 8 * part) - 1), part);
  }
};

// Input by input, so that a line of the panel is written whole while each row is read on.
template <int64_t PRECISION>
void pack_vector(const Net& net, const float* matrix, int64_t inputs, char* base, int64_t panel,
                 int n) {
  const int64_t width = WIDTH[net.kind];
  const float* rows[LANES];
  for (int lane = 0; lane < LANES; ++lane) {
    const int64_t row = row_of(net, panel, n, lane);
    rows[lane] = row < 0 ? nullptr : matrix + row * inputs;
    if (PRECISION == INT8 && rows[lane])
      Lane{INT8, width, n, lane, base}.scale() = std::ldexp(scale_of(rows[lane], inputs), -24);
  }
  for (int64_t k = 0; k < inputs; ++k)
    for (int lane = 0; lane < LANES; ++lane)
      if (rows[lane]) Lane{PRECISION, width, n, lane, base}.put(k, rows[lane][k]);
}

inline void pack_matrix(const Net& net, const float* matrix, int64_t inputs, void* packed) {
  for (int64_t panel = 0; panel < net.panels; ++panel) {
    char* base = static_cast<char*>(packed) + panel * panel_bytes(net, inputs);
    for (int n = 0; n < WIDTH[net.kind]; ++n) {
      if (net.precision == BF16)
        pack_vector<BF16>(net, matrix, inputs, base, panel, n);
      else if (net.precision == INT8)
        pack_vector<INT8>(net, matrix, inputs, base, panel, n);
      else
        pack_vector<FP32>(net, matrix, inputs, base, panel, n);
    }
  }
}

// An element of PyTorch's matrix: a gate, a unit of it, and an input.
struct Spot {
  int64_t gate, unit, k;
};

// Whether it is what was packed of it. This is asked often: no division but by constants.
inline bool same_element(const Net& net, const float* matrix, int64_t inputs, const void* packed,
                         const Spot& spot) {
  const int64_t vector = spot.unit / LANES;
  const bool gated = net.kind <= GRU;
  const int64_t panel = gated ? vector : vector / 2, n = gated ? spot.gate : vector % 2;
  char* base = static_cast<char*>(const_cast<void*>(packed)) + panel * panel_bytes(net, inputs);
  const Lane at{net.precision, WIDTH[net.kind], n, spot.unit % LANES, base};
  return at.holds(spot.k, matrix[(spot.gate * net.hidden + spot.unit) * inputs + spot.k]);
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
  const int64_t gates = GATES[net.kind], hidden = net.hidden, rows = gates * hidden;
  const int64_t first_row = (begin >> 40) % rows, first_k = begin >> 12 & 0xffffffu;
  const int64_t down_gates = net.down / hidden, down_units = net.down % hidden;
  for (const Sweep& sweep : net.sweeps)
    for (const bool recurrent : {false, true}) {
      const int64_t inputs = recurrent ? hidden : sweep.inputs;
      const int64_t along = recurrent ? sweep.along_recurrent : sweep.along;
      const float* matrix = recurrent ? sweep.from_recurrent : sweep.from_into;
      const void* packed = recurrent ? sweep.recurrent : sweep.into;
      Spot spot{first_row / hidden, first_row % hidden, first_k % inputs};
      const int64_t some = std::min(samples, rows * inputs);
      for (int64_t sample = 0; sample < some; ++sample) {
        if (!same_element(net, matrix, inputs, packed, spot)) return true;
        spot.unit += down_units, spot.gate += down_gates;
        if (spot.unit >= hidden) spot.unit -= hidden, ++spot.gate;
        if (spot.gate >= gates) spot.gate -= gates;
        if ((spot.k += along) >= inputs) spot.k -= inputs;
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
