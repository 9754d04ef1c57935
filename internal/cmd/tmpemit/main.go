package main

import (
	"fmt"
	"os"
	"time"

	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
)

func main() {
	t0 := time.Now()
	c, err := models.Lookup(os.Args[1])
	if err != nil { panic(err) }
	sms := 132
	if len(os.Args) > 3 { fmt.Sscan(os.Args[3], &sms) }
	mk, err := megakernel.Build(c, megakernel.Options{SMs: sms})
	if err != nil { panic(err) }
	t1 := time.Now()
	tg, _ := emit.TargetFor("sm_90a")
	f, _ := os.Create(os.Args[2])
	if err := emit.CUDA(f, mk.IR, tg); err != nil { panic(err) }
	fmt.Println(t1.Sub(t0), time.Since(t1), mk.IR.SharedBytes, mk.Plan.Stages)
}
