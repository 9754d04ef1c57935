// Command attention measures the attention phases alone on a GPU, beside the
// streaming ceiling and PyTorch's own decode attention, and checks them and the
// attention variants against PyTorch references.
//
//	go run ./tests/gpu/attention compile -kernels out/attention                 where Go is: the kernels, as cubins
//	scripts/build-cuda build -o out/attention/run ./tests/gpu/attention
//	out/attention/run run -kernels out/attention -dir DIR                       on the GPU: outputs and times, into DIR
//	python3 tests/gpu/attention.py DIR                                          there too: the verdicts, and PyTorch's times
//	out/attention/run record -dir DIR -o bench/results/h200/DATE-attention.json joins both; refuses when a check failed
//
// -cases takes the beginnings of names, with commas between: one-,variant-.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/engine/compile"
	"github.com/mkgen/mkgen/lab/attend"
	"github.com/mkgen/mkgen/lab/bench/ceiling"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tests/gpu/attention/record"
)

// flags are what the command line says.
type flags struct {
	kernels, dir, out, torch, cases string
	rounds                          int
	round                           time.Duration
	trace                           bool
	costs                           costs
	inFlight                        int
	leads                           string
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("attention: ")
	var f flags
	set := flag.NewFlagSet("attention", flag.ExitOnError)
	set.StringVar(&f.kernels, "kernels", "out/attention", "directory of the compiled kernels")
	set.StringVar(&f.dir, "dir", "out/attention/cases", "directory of the cases, their outputs and times")
	set.StringVar(&f.out, "o", "", "record: file to write")
	set.StringVar(&f.torch, "torch", "", "record: what attention.py wrote (default DIR/torch.json)")
	set.StringVar(&f.cases, "cases", "", "beginnings of the names of the cases to take")
	set.IntVar(&f.rounds, "rounds", 7, "run: rounds of each timed case")
	set.Var(&f.costs, "costs",
		"run: the planner's costs, `item,part,row,token,state,phase` in tokens, instead of its own; for finding those")
	set.IntVar(&f.inFlight, "in-flight", 0, "run, compile: copies in flight, instead of the default; for finding that")
	set.StringVar(&f.leads, "leads", "", "run, compile: leads, as mkgen's --leads, instead of the default")
	set.BoolVar(&f.trace, "trace", false, "run: trace each timed case, too, into DIR")
	set.DurationVar(&f.round, "round", 10*time.Millisecond, "run: device time of a round")
	commands := map[string]func(context.Context, *flags) error{"compile": compileAll, "run": run, "record": join}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		log.Fatal("want compile, run or record, and then flags")
	}
	if err := set.Parse(os.Args[2:]); err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := commands[os.Args[1]](ctx, &f); err != nil {
		log.Fatal(err)
	}
}

// ring sets what the flags say of the ring.
func (f *flags) ring(c *attend.Config) {
	c.InFlight = f.inFlight
	leads, err := pipeline.ParseThrottles(f.leads)
	if err != nil {
		log.Fatal(err)
	}
	c.Leads = leads
}

func (f *flags) jobs() []job {
	if f.cases == "" {
		return jobs(nil)
	}
	return jobs(strings.Split(f.cases, ","))
}

// measurements is the file of DIR that run writes and record reads.
const measurements = "run.json"

// arch is what the kernels are compiled for.
const arch = "sm_90a"

// compileAll writes the cubin of every kernel that the cases need, and of the
// ceiling's for a whole GPU.
func compileAll(ctx context.Context, f *flags) error {
	if err := os.MkdirAll(f.kernels, 0o777); err != nil {
		return err
	}
	top, err := ceiling.Kernel(megakernel.DefaultSMs)
	if err != nil {
		return err
	}
	done := map[string]bool{}
	if err := compileOne(ctx, f, "the ceiling", top, done); err != nil {
		return err
	}
	for _, j := range f.jobs() {
		p, err := build(j.c, f.ring)
		if err == nil {
			err = compileOne(ctx, f, j.c.Name, p.IR, done)
		}
		if err != nil {
			return fmt.Errorf("case %s: %w", j.c.Name, err)
		}
	}
	return nil
}

// compileOne writes the cubin of k, unless it is done.
func compileOne(ctx context.Context, f *flags, what string, k *ir.Kernel, done map[string]bool) error {
	src, err := compile.SourceOfKernel(k.Name, k, arch)
	if err != nil {
		return err
	}
	path := filepath.Join(f.kernels, cubin(src))
	if done[path] {
		return nil
	}
	done[path] = true
	r, err := compile.Kernel(ctx, src, compile.Options{})
	if err != nil {
		return err
	}
	fmt.Printf("%s, first for %s: %d registers, %d + %d bytes spilled, %v\n", filepath.Base(path), what, r.Registers,
		r.SpillStores, r.SpillLoads, r.Took.Round(time.Millisecond))
	return errors.Join(r.WriteFile(path), os.WriteFile(filepath.Join(f.kernels, compilerFile), []byte(r.Compiler), 0o666))
}

// join joins what run and attention.py left and writes the record.
func join(_ context.Context, f *flags) error {
	r, err := record.Read(filepath.Join(f.dir, measurements))
	if err != nil {
		return err
	}
	if f.torch == "" {
		f.torch = filepath.Join(f.dir, "torch.json")
	}
	t, err := record.ReadTorch(f.torch)
	if err != nil {
		return err
	}
	if err := r.Merge(t); err != nil {
		return err
	}
	if err := r.WriteTable(os.Stdout); err != nil {
		return err
	}
	times := r.Prefixes()
	for _, name := range slices.Sorted(maps.Keys(times)) {
		fmt.Printf("%s: the single format takes %.2f times as long\n", name, times[name])
	}
	if share, n := r.MedianShare("uniform-"); n > 0 {
		fmt.Printf("uniform-: the median of %d draws is %.1f %% of the ceiling\n", n, 100*share)
	}
	if f.out == "" {
		return errors.Join(r.Check(), errors.New("no record is written: no -o"))
	}
	if err := r.Write(f.out); err != nil {
		return err
	}
	fmt.Println("Record written to", f.out)
	return nil
}
