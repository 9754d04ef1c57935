// Command numerics measures what each rounding of the kernel adds to the error
// of the logits, against float64: the tables of docs/numerics.md.
//
//	go run ./tests/numerics            # measures (minutes) and prints
//	go run ./tests/numerics -update    # also writes docs/numerics.json and the tables of docs/numerics.md
//	go run ./tests/numerics -tables    # writes the tables of the JSON that is there
package main

import (
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"runtime"
	"slices"
	"time"
)

func main() {
	dir := flag.String("docs", "docs", "directory of numerics.json and numerics.md")
	update := flag.Bool("update", false, "write the record and the tables")
	only := flag.Bool("tables", false, "measure nothing, write the tables of the record that is there")
	workers := flag.Int("workers", runtime.GOMAXPROCS(0), "variants measured at a time")
	flag.Parse()
	if err := execute(*dir, *update, *only, max(*workers, 1)); err != nil {
		log.Fatal(err)
	}
}

func execute(dir string, update, only bool, workers int) error {
	path, page := dir+"/numerics.json", dir+"/numerics.md"
	var r *record
	var err error
	start := time.Now()
	progress := func(what string) { fmt.Fprintf(os.Stderr, "%6.1f s: %s\n", time.Since(start).Seconds(), what) }
	if only {
		r, err = readRecord(path)
	} else {
		r, err = measureAll(workers, progress)
	}
	if err != nil {
		return err
	}
	tables := r.tables()
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		fmt.Printf("%s\n\n%s\n", name, tables[name])
	}
	if !update && !only {
		return nil
	}
	if !only {
		if err := r.write(path); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	filled, err := fillIn(string(text), tables)
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, []byte(filled), 0o666)
}
