//go:build cuda

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// watcher looks at the process's memory a hundred times a second.
type watcher struct {
	end  chan struct{}
	wg   sync.WaitGroup
	most usage
}

// usage is resident memory in bytes: of no file, shared (pinned memory is counted
// here or there), of mapped files.
type usage struct{ anon, shared, file int64 }

func (u usage) String() string {
	return fmt.Sprintf("%.0f MB anonymous and %.0f MB shared (beside mapped files: %.0f MB), %.0f MB of mapped files",
		float64(u.anon)/1e6, float64(u.shared)/1e6, float64(u.anon+u.shared)/1e6, float64(u.file)/1e6)
}

func watch() *watcher {
	w := &watcher{end: make(chan struct{})}
	w.wg.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			u := now()
			w.most = usage{max(w.most.anon, u.anon), max(w.most.shared, u.shared), max(w.most.file, u.file)}
			select {
			case <-w.end:
				return
			case <-tick.C:
			}
		}
	})
	return w
}

// stop returns the largest figures seen.
func (w *watcher) stop() usage {
	close(w.end)
	w.wg.Wait()
	return w.most
}

// now reads /proc/self/status; all zero where there is none.
func now() (u usage) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return u
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		to := map[string]*int64{"RssAnon:": &u.anon, "RssShmem:": &u.shared, "RssFile:": &u.file}[fields[0]]
		if to == nil {
			continue
		}
		if n, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
			*to = n << 10
		}
	}
	return u
}
