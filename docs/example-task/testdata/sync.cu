    // ---- sync ----
    {
      epoch_target = epoch_target + 2;
      ptx::bar_sync<1, 32>();
      // grid barrier: thread 0 arrives and polls the counter until all CTAs have; the CTA's threads meet behind it  [grid/barrier.go, Barrier.SyncWhile]
      if (tid == 0) {
        ptx::red_release_gpu_add_u32(barrier, 1);
        ptx::wait_ge_acquire_gpu(barrier, epoch_target);
      }
      ptx::bar_sync<1, 32>();
    }
