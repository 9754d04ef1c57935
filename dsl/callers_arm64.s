#include "go_asm.h"
#include "textflag.h"

// func callers(pcs *[nearFrames]uintptr)
TEXT ·callers(SB), NOSPLIT|NOFRAME, $0-8
	MOVD pcs+0(FP), R0
	MOVD R29, R1
	MOVD $const_nearFrames, R2

next:
	CBZ  R1, done
	MOVD 8(R1), R3
	MOVD R3, (R0)
	ADD  $8, R0
	MOVD (R1), R1
	SUB  $1, R2
	CBNZ R2, next

done:
	RET
