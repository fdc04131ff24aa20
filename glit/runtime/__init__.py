"""What any long work needs: prefetching, progress, cores, devices, servers on this machine."""
