#include "go_asm.h"
#include "textflag.h"

// func callers(pcs *[nearFrames]uintptr)
TEXT ·callers(SB), NOSPLIT|NOFRAME, $0-8
	MOVQ pcs+0(FP), DI
	MOVQ BP, SI
	MOVQ $const_nearFrames, CX

next:
	TESTQ SI, SI
	JZ    done
	MOVQ  8(SI), DX
	MOVQ  DX, (DI)
	ADDQ  $8, DI
	MOVQ  (SI), SI
	DECQ  CX
	JNZ   next

done:
	RET
