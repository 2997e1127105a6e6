#include "ops/cpu_node.h"

#include <mlx/allocator.h>
#include <mlx/backend/cpu/encoder.h>
#include <mlx/primitives.h>
#include <mlx/utils.h>

#include <stdexcept>
#include <string>

namespace tutti::ops {
namespace {

// What a dispatched body needs. Shared with the task: MLX drops the primitive once its node is dispatched.
struct Task {
  const char* op;
  Step step;
  CpuBody body;
};

void run(const Task& task, const float* x, float* out) {
  thread_local Scratch scratch;
  scratch.reset();
  if (task.step->before_node) task.step->before_node(task.op);
  task.body(x, out, scratch);
}

class CpuPrimitive : public mx::UnaryPrimitive {
 public:
  CpuPrimitive(mx::Stream stream, std::shared_ptr<const Task> task)
      : mx::UnaryPrimitive(stream), task_(std::move(task)) {}

  void eval_cpu(const std::vector<mx::array>& inputs, mx::array& out) override {
    const float* x = nullptr;
    auto& encoder = mx::cpu::get_command_encoder(stream());
    if (!inputs.empty()) {
      if (!inputs[0].flags().row_contiguous) {
        throw std::invalid_argument(std::string("[").append(task_->op) + "] x is not contiguous");
      }
      encoder.set_input_array(inputs[0]);
      x = inputs[0].data<float>();
    }
    out.set_data(mx::allocator::malloc(out.nbytes()));
    encoder.set_output_array(out);
    encoder.dispatch([task = task_, x, y = out.data<float>()] { run(*task, x, y); });
  }
  void eval_gpu(const std::vector<mx::array>&, mx::array&) override {
    throw std::runtime_error(std::string("[").append(task_->op) + "] packed weights serve the CPU only");
  }
  const char* name() const override { return task_->op; }

 private:
  std::shared_ptr<const Task> task_;
};

}  // namespace

mx::array cpu_node(CpuNode node) {
  if (node.step->table == nullptr) {
    throw std::invalid_argument(std::string("[").append(node.op) + "] the step has no kernel table");
  }
  auto task = std::make_shared<const Task>(Task{node.op, std::move(node.step), std::move(node.body)});
  const auto stream = mx::to_stream(mx::Device(mx::Device::cpu));
  return mx::array(std::move(node.shape), mx::float32, std::make_shared<CpuPrimitive>(stream, std::move(task)),
                   std::move(node.inputs));
}

}  // namespace tutti::ops
