// Package sass holds a kernel's machine code against its program: every fence, barrier, mbarrier operation, bulk copy
// and ordered access of the program must be there, of the same kind and scope and in the same order on every path, and
// no plain access may have crossed one of them. Copies that unrolling makes, and predication in place of branches are
// allowed.
//
// Both sides are graphs of places, of which some are events: what synchronises. The program's places come from the IR,
// the machine code's from nvdisasm. [Check] walks the machine code with the set of places of the program at which a
// thread can be (the subset construction), and reports where no place of the program allows what the machine code does
// next. So each path through the machine code is a path through the program; that those who wait are answered is the
// executor's business.
package sass
