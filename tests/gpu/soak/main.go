// Command soak asks a running mkgen serve for a long time, with more clients than its queue has room for: requests of
// random length and parameters, of which some clients leave in the middle. It asks from outside, so the server is the
// one that ships, on a GPU or on the executor, pinned:
//
//	go build -o out/soak ./tests/gpu/soak
//	mkgen serve --model llama3.2-1b --random 1 --tokenizer DIR --rows 16 --pin-split 64 --queue 64
//	out/soak -url http://127.0.0.1:8000/v1 -requests 10000 -time 5m -clients 96 -o soak.json
//
// Every answer must carry its request's id and, with echo, its prompt, and have its length. Some are asked for again,
// alone, and must be the same bits. In the end no sequence may run or wait, all pages of the KV cache must be free or
// remembered, goroutines be as many as before, and memory not have grown. It ends with 1 where something is wrong.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"reflect"
	"sync"
	"time"

	"github.com/mkgen/mkgen/internal/atomicfile"
	"github.com/mkgen/mkgen/internal/revision"
)

// soak is what is asked for and what came of it; the fields that are exported are the record.
type soak struct {
	*site
	seed           uint64
	longest, again int

	Date     string  `json:"date"`
	Commit   string  `json:"commit"`
	Model    string  `json:"model"`
	GPU      string  `json:"gpu"`
	Clients  int     `json:"clients"`
	Seconds  float64 `json:"seconds"`
	Requests int     `json:"requests"` // begun and not refused
	Answered int     `json:"answered"`
	Left     int     `json:"left"`    // clients that went in the middle
	Refused  int     `json:"refused"` // 429s, after which the request is sent again
	Again    int     `json:"again"`   // asked for again alone, and equal in bits
	Tokens   int     `json:"tokens"`
	JSON     int     `json:"json"` // answers by a schema that came to their end

	Goroutines [2]int    `json:"goroutines"` // before and after
	Memory     []float64 `json:"memory_mb"`  // of the server, resident, after each tenth of -time
	Pages      int       `json:"kv_pages"`
	Wrong      []string  `json:"wrong"`

	mu   sync.Mutex
	next int
	kept []kept
}

// kept is an answer that is to be had again.
type kept struct {
	q request
	a answer
}

func main() {
	s := &soak{Date: time.Now().UTC().Format(time.DateOnly), Commit: revision.String(), Wrong: []string{}}
	url := flag.String("url", "http://127.0.0.1:8000/v1", "of the server")
	requests := flag.Int("requests", 10000, "to ask at least")
	lasting := flag.Duration("time", 5*time.Minute, "to ask for at least so long")
	flag.IntVar(&s.Clients, "clients", 96, "that ask at a time; more than the server's rows and queue, so that some are refused")
	flag.IntVar(&s.longest, "longest", 192, "tokens of an answer at most")
	flag.IntVar(&s.again, "again", 300, "answers to have again, alone")
	flag.Uint64Var(&s.seed, "seed", 1, "of the requests")
	flag.StringVar(&s.GPU, "gpu", "", "what the server runs on, for the record")
	out := flag.String("o", "", "file for the record")
	flag.Parse()
	s.site = newSite(*url, s.Clients)
	err := s.run(*requests, *lasting)
	fmt.Println(s)
	for _, wrong := range s.Wrong[:min(20, len(s.Wrong))] {
		fmt.Println("wrong:", wrong)
	}
	if err == nil && *out != "" {
		data, _ := json.MarshalIndent(s, "", "  ")
		err = atomicfile.Write(*out, append(data, '\n'))
	}
	if err == nil && len(s.Wrong) > 0 {
		err = fmt.Errorf("%d things are wrong", len(s.Wrong))
	}
	if err != nil {
		log.Fatal(err)
	}
}

func (s *soak) String() string {
	return fmt.Sprintf("%d requests in %.0f s by %d clients: %d answered (%d tokens, %d by a schema to their end), %d left, %d times refused; "+
		"%d had again alone, the same bits; goroutines %d before, %d after; memory %.0f MB; %d wrong", s.Requests, s.Seconds,
		s.Clients, s.Answered, s.Tokens, s.JSON, s.Left, s.Refused, s.Again, s.Goroutines[0], s.Goroutines[1], s.Memory,
		len(s.Wrong))
}

// run asks, has answers again, and looks at what is left.
func (s *soak) run(requests int, lasting time.Duration) error {
	if err := s.name(); err != nil {
		return err
	}
	if _, err := s.ask(context.Background(), requestOf(s.seed, 0, s.longest)); err != nil { // whatever starts once
		return fmt.Errorf("the first request: %w", err)
	}
	s.client.CloseIdleConnections()
	time.Sleep(200 * time.Millisecond)
	before, err := s.metrics()
	if err != nil {
		return err
	}
	begin := time.Now()
	stop := s.watch(lasting / 10)
	var clients sync.WaitGroup
	for range s.Clients {
		clients.Go(func() {
			for {
				s.mu.Lock()
				s.next++
				n := s.next
				s.mu.Unlock()
				if n > requests && time.Since(begin) > lasting {
					return
				}
				s.one(requestOf(s.seed, n, s.longest))
			}
		})
	}
	clients.Wait()
	s.Seconds = time.Since(begin).Seconds()
	stop()
	s.alone()
	return s.leftOver(before)
}

// name is the model's for the record.
func (s *soak) name() error {
	got, err := s.client.Get(s.url + "/models")
	if err != nil {
		return err
	}
	defer got.Body.Close()
	var models struct{ Data []struct{ ID string } }
	if err := json.NewDecoder(got.Body).Decode(&models); err != nil || len(models.Data) == 0 {
		return fmt.Errorf("/v1/models names no model: %v", err)
	}
	s.Model = models.Data[0].ID
	return nil
}

// one asks until the request is taken.
func (s *soak) one(q request) {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		ctx, cancel := context.Background(), func() {}
		if q.leave > 0 {
			ctx, cancel = context.WithTimeout(ctx, q.leave)
		}
		a, err := s.ask(ctx, q)
		cancel()
		s.mu.Lock()
		switch {
		case errors.Is(err, errFull):
			s.Refused++
		case q.leave > 0 && errors.Is(err, context.DeadlineExceeded):
			s.Requests, s.Left = s.Requests+1, s.Left+1
		case err != nil:
			s.Requests, s.Wrong = s.Requests+1, append(s.Wrong, fmt.Sprintf("request %d: %v", q.number, err))
		default:
			s.answered(q, a)
		}
		s.mu.Unlock()
		if !errors.Is(err, errFull) {
			return
		}
		time.Sleep(wait)
	}
}

// answered counts an answer, and keeps some of those that were drawn: each that many later ones are kept beside.
func (s *soak) answered(q request, a answer) {
	s.Requests, s.Answered, s.Tokens = s.Requests+1, s.Answered+1, s.Tokens+a.Tokens
	if q.schema && a.Finish == "stop" {
		s.JSON++
	}
	if q.body["temperature"] == 0.0 {
		return
	}
	if len(s.kept) < s.again {
		s.kept = append(s.kept, kept{q, a})
	} else if s.again > 0 && s.Answered%7 == 0 {
		s.kept[(s.Answered/7)%s.again] = kept{q, a}
	}
}

// alone has the kept answers again, one at a time.
func (s *soak) alone() {
	for _, k := range s.kept {
		a, err := s.ask(context.Background(), k.q)
		switch {
		case err != nil:
			s.Wrong = append(s.Wrong, fmt.Sprintf("request %d again: %v", k.q.number, err))
		case !reflect.DeepEqual(a, k.a):
			s.Wrong = append(s.Wrong, fmt.Sprintf("request %d is %.200q alone, was %.200q", k.q.number, a.Text, k.a.Text))
		default:
			s.Again++
		}
	}
}

const mb = 1e6

// watch notes the server's memory now and then, until the function that it returns is called.
func (s *soak) watch(every time.Duration) (stop func()) {
	end := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		for {
			select {
			case <-end:
				return
			case <-time.After(every):
			}
			if m, err := s.metrics(); err == nil {
				s.mu.Lock()
				s.Memory = append(s.Memory, m["process_resident_memory_bytes"]/mb)
				s.mu.Unlock()
			}
		}
	})
	return func() { close(end); done.Wait() }
}

// grown is by which part the memory may grow from the middle of the soak to its end, and by how many MB beside.
const grown, grownMB = 0.05, 64

// leftOver looks at what the server still has when nobody asks.
func (s *soak) leftOver(before map[string]float64) error {
	s.client.CloseIdleConnections()
	var m map[string]float64
	for range 100 {
		time.Sleep(100 * time.Millisecond)
		var err error
		if m, err = s.metrics(); err != nil {
			return err
		}
		s.client.CloseIdleConnections()
		if len(s.remains(before, m)) == 0 {
			break
		}
	}
	s.Goroutines, s.Pages = [2]int{int(before["go_goroutines"]), int(m["go_goroutines"])}, int(m["mkgen_kv_pages"])
	s.Wrong = append(s.Wrong, s.remains(before, m)...)
	if n := len(s.Memory); n > 1 {
		if middle, last := s.Memory[n/2], s.Memory[n-1]; last > middle*(1+grown)+grownMB {
			s.Wrong = append(s.Wrong, fmt.Sprintf("memory has grown from %.0f to %.0f MB", middle, last))
		}
	}
	return nil
}

// remains says what should not be there.
func (s *soak) remains(before, m map[string]float64) (wrong []string) {
	if n := m["mkgen_running_sequences"] + m["mkgen_queued_sequences"]; n > 0 {
		wrong = append(wrong, fmt.Sprintf("%.0f sequences run or wait", n))
	}
	if free := m["mkgen_kv_pages_free"] + m["mkgen_kv_pages_remembered"]; free != m["mkgen_kv_pages"] || free == 0 {
		wrong = append(wrong, fmt.Sprintf("%.0f of %.0f pages are free or remembered", free, m["mkgen_kv_pages"]))
	}
	if m["go_goroutines"] > before["go_goroutines"]+2 {
		wrong = append(wrong, fmt.Sprintf("%.0f goroutines, before %.0f", m["go_goroutines"], before["go_goroutines"]))
	}
	return wrong
}
