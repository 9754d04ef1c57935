package megakernel_test

import (
	"testing"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

func TestOptionsOfAGraph(t *testing.T) {
	tiny, err := models.Lookup("tiny")
	require.NoError(t, err)
	graph := megakernel.Options{SMs: 4, Launch: megakernel.LaunchGraph}
	for want, change := range map[string]func(o *megakernel.Options){
		`options: found "twice", want single or graph`: func(o *megakernel.Options) {
			o.Launch = "twice"
		},
		`options: 2 kernels side by side, but a step is one; that is for a graph of them`: func(o *megakernel.Options) {
			o.Launch, o.Resident = "", 2
		},
		`options: "start", but a step is one kernel; that is for a graph of them`: func(o *megakernel.Options) {
			o.Launch, o.Dependents = "single", "start"
		},
		`options: 5 kernels side by side on an SM, want 1 to 4`: func(o *megakernel.Options) {
			o.Resident = 5
		},
		`options: 4 kernels of 544 threads side by side, an SM has room for 2048 threads`: func(o *megakernel.Options) {
			o.Resident, o.Consumers = 4, 16
		},
		`options: 65 steps a launch of a graph, want 1 to 64`: func(o *megakernel.Options) { o.GraphSteps = 65 },
		`options: 2 steps a launch of a graph, but a step is one kernel; that is for a graph of them`: func(o *megakernel.Options) {
			o.Launch, o.GraphSteps = "single", 2
		},
		`options: found "soon", want start, waited, streamed or ended`: func(o *megakernel.Options) {
			o.Dependents = "soon"
		},
		`options: a graph of kernels with 2 query rows a step, want one`: func(o *megakernel.Options) {
			o.Tokens = 2
		},
		`options: all waits of a graph of kernels, which have none; want grid or none`: func(o *megakernel.Options) {
			o.Watchdog = megakernel.WatchAll
		},
		`options: a trace of a graph of kernels, want none`: func(o *megakernel.Options) { o.Trace = 1 },
		`options: fault "lost-arrival", which a graph of kernels cannot have: there is no sync to hang at`: func(o *megakernel.Options) {
			o.Fault = megakernel.FaultLostArrival
		},
	} {
		o := graph
		change(&o)
		_, err := megakernel.Build(tiny, o)
		require.EqualError(t, err, want)
	}
}

// Every registered model has a graph of kernels, of which as many as asked fit on an SM
// together with one that has no ring; built from its own options it is the same.
func TestGraphsOfAllModelsFit(t *testing.T) {
	for _, c := range models.Checked() {
		for resident := 1; resident <= 3; resident++ {
			mk, err := megakernel.Build(c, megakernel.Options{Launch: megakernel.LaunchGraph, Resident: resident})
			if err != nil { // 70B's inputs leave a third of an SM no ring
				require.Greater(t, resident, 1, "%s: %v", c.Name, err)
				continue
			}
			require.Len(t, mk.Graph.Kernels, 7)
			require.Len(t, mk.Graph.Nodes, 6*c.Layers+1)
			require.Zero(t, mk.Barriers())
			_, err = mk.Files("sm_90a")
			require.ErrorContains(t, err, "files of a graph of kernels")
			const system, perSM = 1024, 233472
			merge := mk.Graph.Kernels[2].SharedBytes + system
			for _, k := range mk.Graph.Kernels {
				require.LessOrEqual(t, resident*(k.SharedBytes+system)+merge, perSM, "%s, %s", c.Name, k.Name)
				require.Equal(t, resident, k.PerSM)
			}
			again, err := megakernel.Build(c, mk.Options)
			require.NoError(t, err)
			require.Equal(t, mk.Options, again.Options)
			for i, k := range mk.Graph.Kernels {
				require.Equal(t, k.SharedBytes, again.Graph.Kernels[i].SharedBytes)
			}
		}
	}
}
