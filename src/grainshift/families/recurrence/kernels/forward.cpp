// Runs LSTM, GRU and RNN layers over sequences: packed weights, blocks of steps, a team of threads.
//
// A member of the team owns some panels of units for a whole sweep, so that their weights stay in
// its cache. Each step ends with one wait for the members of the same sweep. Both directions of a
// layer, and layers one behind the other, run as sweeps side by side where there are threads.
#include "call.h"

namespace {

constexpr int MOST_ROWS = 8;
constexpr int64_t MOST_KEPT_BYTES = 32 << 20;

// Memory that a thread keeps from call to call, unless it is much; null when there is none left.
class Scratch {
 public:
  ~Scratch() { std::free(memory_); }
  void* take(int64_t bytes) {
    if (bytes > size_) {
      std::free(memory_);
      size_ = (bytes + 63) / 64 * 64;
      memory_ = std::aligned_alloc(64, size_);
      if (!memory_) size_ = 0;
    }
    return memory_;
  }
  void give_back() {
    if (size_ <= MOST_KEPT_BYTES) return;
    std::free(memory_);
    memory_ = nullptr, size_ = 0;
  }

 private:
  void* memory_ = nullptr;
  int64_t size_ = 0;
};

// One member's share of one sweep.
class Member {
 public:
  Member(const Call& call, Progress* progress, int64_t sweep, int first, int rank, int size,
         int64_t base, int id)
      : call_(call), net_(*call.net), sweep_(net_.sweeps[sweep]), progress_(progress),
        number_(sweep), layer_(sweep / net_.directions), back_(sweep % net_.directions),
        first_(first), size_(size), base_(base), id_(id), width_(WIDTH[net_.kind]),
        from_(net_.panels * rank / size), to_(net_.panels * (rank + 1) / size),
        block_(call.plan ? call.plan[2 * sweep] : call.block),
        until_(call.plan ? call.plan[2 * sweep + 1] : call.until) {
    y_ = target(layer_, y_step_, y_row_);
    if (layer_ == 0) {
      x_ = call.x, x_step_ = call.x_step, x_row_ = call.x_row;
    } else {
      x_ = target(layer_ - 1, x_step_, x_row_);
    }
    y_ += back_ * net_.hidden;
    const int64_t state = number_ * call.rows * net_.hidden;
    h_ = call.h + state, h_after_ = call.h_after + state;
    if (net_.kind == LSTM) {
      c_after_ = call.c_after + state;
      if (call.kept || call.c != call.c_after) copy_units(call.c + state, c_after_, call.rows);
    }
  }

  // `source` are the members that make this sweep's input while it runs; none where it is there.
  void run(int source_first, int source_last, Scratch& scratch) {
    static thread_local std::vector<const float*> inputs;
    const int64_t steps = call_.steps;
    for (int64_t at = 0; at < steps;) {
      const int64_t block = at < until_ ? std::min(block_, until_ - at) : 1;
      const int64_t end = std::min(at + block, steps);
      if (source_first < source_last) await(progress_, source_first, source_last, base_ + end);
      inputs.clear();
      for (int64_t step = at; step < end; ++step)
        for (int64_t row = 0; row < rows(step); ++row)
          inputs.push_back(row_at(x_, x_step_, x_row_, time(step), row));
      const int64_t count = inputs.size();
      const int64_t bytes = count * (to_ - from_) * width_ * static_cast<int64_t>(sizeof(Vec));
      Vec* sums = block > 1 ? static_cast<Vec*>(scratch.take(bytes)) : nullptr;
      if (sums) project(inputs.data(), count, sums);
      int64_t done = 0;
      for (int64_t step = at; step < end; ++step) {
        take_step(step, inputs.data() + done, sums ? sums + done * width_ : nullptr, count);
        done += rows(step);
        if (step + 1 == steps) finish();
        progress_[id_].steps.store(base_ + step + 1, std::memory_order_release);
        if (size_ > 1) await(progress_, first_, first_ + size_, base_ + step + 1);
      }
      at = end;
    }
  }

 private:
  float* target(int64_t layer, int64_t& step, int64_t& row) const {
    if (layer == net_.layers - 1) {
      step = call_.y_step, row = call_.y_row;
      return call_.y;
    }
    row = net_.directions * net_.hidden;
    const int64_t all = call_.rows_at ? call_.first_row[call_.steps] : call_.steps * call_.rows;
    step = call_.rows * row;
    return call_.between + layer * all * row;
  }

  int64_t time(int64_t step) const { return back_ ? call_.steps - 1 - step : step; }

  int64_t rows(int64_t step) const {
    return call_.rows_at ? call_.rows_at[time(step)] : call_.rows;
  }

  template <class Float>
  Float* row_at(Float* base, int64_t by_step, int64_t by_row, int64_t time, int64_t row) const {
    if (call_.rows_at) return base + (call_.first_row[time] + row) * by_row;
    return base + time * by_step + row * by_row;
  }

  const float* before(int64_t step, int64_t row) const {
    // Going back over packed sequences, a row begins when its own end is met.
    if (step == 0 || row >= rows(step - 1)) return h_ + row * net_.hidden;
    return row_at(y_, y_step_, y_row_, time(step - 1), row);
  }

  const void* panel(const void* packed, int64_t number, int64_t inputs) const {
    return static_cast<const char*>(packed) + number * panel_bytes(net_, inputs);
  }

  Product product_for(int64_t rows) const {
    if (net_.kind == LSTM) return find_product<4>(net_.precision, rows);
    if (net_.kind == GRU) return find_product<3>(net_.precision, rows);
    return find_product<2>(net_.precision, rows);
  }

  int64_t most() const {
    return net_.kind == LSTM ? most_rows<4>() : net_.kind == GRU ? most_rows<3>() : most_rows<2>();
  }

  // Calls `body(first, count)` for runs of rows of nearly one size that a product can take.
  template <class Body>
  void by_rows(int64_t rows, Body body) const {
    const int64_t runs = (rows + most() - 1) / most();
    for (int64_t run = 0, at = 0; run < runs; ++run) {
      const int64_t end = rows * (run + 1) / runs;
      body(at, end - at);
      at = end;
    }
  }

  // Fills `sums` with the biases that go before the input product; a GRU's recurrent one is apart.
  void begin_inputs(int64_t number, int64_t rows, Vec* sums) const {
    for (int n = 0; n < width_; ++n) {
      Vec bias = bias_of(net_, sweep_.bias_in, number, n);
      if (net_.kind != GRU) bias += bias_of(net_, sweep_.bias_recurrent, number, n);
      for (int64_t row = 0; row < rows; ++row) sums[row * width_ + n] = bias;
    }
  }

  void begin_recurrent(int64_t number, int64_t rows, Vec* sums) const {
    for (int n = 0; n < width_; ++n) {
      const Vec bias = bias_of(net_, sweep_.bias_recurrent, number, n);
      for (int64_t row = 0; row < rows; ++row) sums[row * width_ + n] = bias;
    }
  }

  void project(const float* const* inputs, int64_t count, Vec* sums) const {
    for (int64_t number = from_; number < to_; ++number) {
      const void* weights = panel(sweep_.into, number, sweep_.inputs);
      Vec* out = sums + (number - from_) * count * width_;
      by_rows(count, [&](int64_t first, int64_t rows) {
        Vec* to = out + first * width_;
        begin_inputs(number, rows, to);
        product_for(rows)(inputs + first, sweep_.inputs, weights, to);
      });
    }
  }

  // Every other step walks the panels backwards, from call to call, too: what the cache kept of the
  // last is met first.
  void take_step(int64_t step, const float* const* inputs, const Vec* sums, int64_t count) const {
    const bool down = (call_.steps_before + step) % 2;
    for (int64_t turn = from_; turn < to_; ++turn) {
      const int64_t number = down ? to_ - 1 - (turn - from_) : turn;
      const Vec* mine = sums ? sums + (number - from_) * count * width_ : nullptr;
      by_rows(rows(step), [&](int64_t first, int64_t some) {
        advance(step, number, first, some, inputs + first, mine ? mine + first * width_ : nullptr);
      });
    }
  }

  void advance(int64_t step, int64_t number, int64_t first, int64_t some,
               const float* const* inputs, const Vec* given) const {
    Vec sums[MOST_ROWS * 4], recurrent[MOST_ROWS * 4];
    const float* states[MOST_ROWS];
    for (int64_t row = 0; row < some; ++row) states[row] = before(step, first + row);
    const Product multiply = product_for(some);
    if (given) {
      for (int64_t at = 0; at < some * width_; ++at) sums[at] = given[at];
    } else {
      begin_inputs(number, some, sums);
      multiply(inputs, sweep_.inputs, panel(sweep_.into, number, sweep_.inputs), sums);
    }
    Vec* into = sums;
    if (net_.kind == GRU) {
      into = recurrent;
      begin_recurrent(number, some, recurrent);
    }
    multiply(states, net_.hidden, panel(sweep_.recurrent, number, net_.hidden), into);
    const int64_t unit = number * units_of(net_.kind);
    for (int64_t row = 0; row < some; ++row)
      bend(step, first + row, unit, sums + row * width_, recurrent + row * width_, states[row]);
  }

  void bend(int64_t step, int64_t row, int64_t unit, const Vec* sums, const Vec* recurrent,
            const float* before) const {
    const int64_t now = time(step), hidden = net_.hidden, count = hidden - unit;
    const int64_t kept = KEPT[net_.kind] * hidden;
    Place at{before, nullptr, row_at(y_, y_step_, y_row_, now, row), nullptr, hidden, unit};
    if (call_.kept) {
      const int64_t all = call_.rows_at ? call_.first_row[call_.steps] : call_.steps * call_.rows;
      const int64_t place = call_.rows_at ? call_.first_row[now] + row : now * call_.rows + row;
      at.kept = call_.kept + (number_ * all + place) * kept;
    }
    if (net_.kind == LSTM) {
      at.cell = c_after_ + row * hidden;
      lstm(sums, at, count);
    } else if (net_.kind == GRU) {
      gru(sums, recurrent, at, count);
    } else {
      rnn(net_.kind == RNN_RELU, sums, at, count);
    }
  }

  void copy_units(const float* from, float* to, int64_t rows) const {
    const int64_t unit = units_of(net_.kind), hidden = net_.hidden;
    const int64_t begin = std::min(from_ * unit, hidden), end = std::min(to_ * unit, hidden);
    for (int64_t row = 0; row < rows; ++row)
      std::memcpy(to + row * hidden + begin, from + row * hidden + begin, (end - begin) * 4);
  }

  void finish() const {
    const int64_t unit = units_of(net_.kind), hidden = net_.hidden;
    const int64_t begin = std::min(from_ * unit, hidden), end = std::min(to_ * unit, hidden);
    for (int64_t row = 0; row < call_.rows; ++row) {
      int64_t last = back_ ? 0 : call_.steps - 1;  // the time of the row's last step
      while (!back_ && call_.rows_at && row >= call_.rows_at[last]) --last;
      const float* from = row_at(y_, y_step_, y_row_, last, row);
      std::memcpy(h_after_ + row * hidden + begin, from + begin, (end - begin) * 4);
    }
  }

  const Call& call_;
  const Net& net_;
  const Sweep& sweep_;
  Progress* progress_;
  int64_t number_, layer_, back_;
  int first_, size_;
  int64_t base_;
  int id_, width_;
  int64_t from_, to_;
  int64_t block_, until_;
  const float* x_;
  int64_t x_step_, x_row_;
  float* y_;
  int64_t y_step_, y_row_;
  const float* h_;
  float *h_after_, *c_after_ = nullptr;
};

struct Job {
  const Call& call;
  Progress progress[MOST_THREADS];
};

// Walks all sweeps, as many side by side as there are threads for.
void take_part(Job& job, int id, int threads) {
  static thread_local Scratch scratch;
  const Net& net = *job.call.net;
  const int64_t total = net.layers * net.directions;
  int64_t base = 0;
  for (int64_t sweep = 0; sweep < total;) {
    int64_t beside = 1;
    if (net.directions == 2)
      beside = std::min<int64_t>(threads, 2);
    else if (job.call.wave)
      beside = std::min<int64_t>(threads, total - sweep);
    const int number = static_cast<int>(id * beside / threads);
    const auto first = [&](int64_t team) {
      return static_cast<int>((team * threads + beside - 1) / beside);
    };
    const int begin = first(number), end = first(number + 1);
    const bool follows = net.directions == 1 && number > 0;
    Member member(job.call, job.progress, sweep + number, begin, id - begin, end - begin, base, id);
    member.run(follows ? first(number - 1) : 0, follows ? begin : 0, scratch);
    sweep += beside;
    base += job.call.steps;
    if (sweep < total) await(job.progress, 0, threads, base);
  }
  scratch.give_back();
}

void body(void* data) {
  Job& job = *static_cast<Job*>(data);
  const Pool& pool = *job.call.pool;
  take_part(job, pool.number(), pool.size());
}

}  // namespace

extern "C" {

int64_t gs_lanes() { return LANES; }

// Frees what `gs_make` made, whole or in part.
void gs_free(Net* net) {
  for (void* memory : net->held) std::free(memory);
  delete net;
}

Net* gs_make(int64_t kind, int64_t inputs, int64_t hidden, int64_t layers, int64_t directions,
             int64_t precision) {
  Net* net = new Net{};
  net->kind = kind, net->hidden = hidden, net->layers = layers;
  net->directions = directions, net->precision = precision;
  net->panels = (hidden + units_of(kind) - 1) / units_of(kind);
  net->down = stride_of(GATES[kind] * hidden, GATES[kind] * hidden / 5);
  for (int64_t number = 0; number < layers * directions; ++number) {
    const int64_t wide = number < directions ? inputs : directions * hidden;
    Sweep sweep{};
    sweep.inputs = wide;
    sweep.along = stride_of(wide, wide / 3), sweep.along_recurrent = stride_of(hidden, hidden / 3);
    // Side by side: pages of both that lie anywhere would take each other's places in the cache.
    const int64_t into_bytes = net->panels * panel_bytes(*net, wide);
    sweep.into = hold(*net, into_bytes + net->panels * panel_bytes(*net, hidden));
    sweep.recurrent = static_cast<char*>(sweep.into) + into_bytes;
    if (!sweep.into) {
      gs_free(net);
      return nullptr;
    }
    net->sweeps.push_back(sweep);
  }
  return net;
}

int64_t gs_held_bytes(const Net* net) { return net->held_bytes; }

void gs_pack(Net* net, int64_t number, const float* into, const float* recurrent,
             const float* bias_in, const float* bias_recurrent) {
  Sweep& sweep = net->sweeps[number];
  sweep.from_into = into, sweep.from_recurrent = recurrent;
  sweep.bias_in = bias_in, sweep.bias_recurrent = bias_recurrent;
  pack_matrix(*net, into, sweep.inputs, sweep.into);
  pack_matrix(*net, recurrent, net->hidden, sweep.recurrent);
}

// 0 when it ran; nothing was done where the weights have changed since they were packed, or where
// there is no memory.
int gs_run(const Call* given) {
  static thread_local Scratch between;
  Call call = *given;
  const Net& net = *call.net;
  const int64_t samples = std::clamp(16 * call.steps * call.rows, LEAST_SAMPLES, MOST_SAMPLES);
  if (is_stale(net, samples)) return STALE;
  if (net.layers > 1 && !call.between) {
    const int64_t all = call.rows_at ? call.first_row[call.steps] : call.steps * call.rows;
    const int64_t bytes = (net.layers - 1) * all * net.directions * net.hidden * 4;
    call.between = static_cast<float*>(between.take(bytes));
    if (!call.between) return NO_MEMORY;
  }
  call.steps_before = net.steps.fetch_add(call.steps, std::memory_order_relaxed);
  Job job{call, {}};
  const int64_t threads = std::min<int64_t>(call.threads, MOST_THREADS);
  if (threads <= 1 || !call.pool)
    take_part(job, 0, 1);
  else
    call.pool->parallel(body, &job, static_cast<unsigned>(threads), 0);
  between.give_back();
  return RAN;
}

}

#include "backward.h"
#include "outer.h"
