/* Every MPI function that mpi_profile.c stands before. It is included several times, with another meaning of CALL each:
 * CALL(name, kind, parameters, arguments, peer, after): `peer` is looked up before the call, `after` counts behind it;
 * TIMED(name, kind, arity): nothing but the time; SPECIAL(name, kind): written by hand there.
 * `self` is the function's number, `who` the peer, `time` what the call took. */
SPECIAL(Init, SETUP)
SPECIAL(Initialized, SETUP)
SPECIAL(Init_thread, SETUP)
SPECIAL(Session_init, SETUP)
SPECIAL(Finalize, SETUP)
SPECIAL(Abort, SETUP)
SPECIAL(Pcontrol, SETUP)

#define EACH(...) CALL(__VA_ARGS__)
#define EACH_TIMED(...) TIMED(__VA_ARGS__)

/* functions with counts, and those of MPI 4 with large ones */
#define LARGE(name) name
#define N int
#define D int
#include "mpi_counted_calls.h"
#undef LARGE
#undef N
#undef D
#define LARGE(name) name##_c
#define N int64_t
#define D intptr_t
#include "mpi_counted_calls.h"
#undef LARGE
#undef N
#undef D

/* completion */
CALL(Wait, WAITING, (void *request, void *status), (request, status), all_of(1, request), waited(who, time))
CALL(Waitall, WAITING, (int count, void *array, void *statuses), (count, array, statuses), all_of(count, array),
     waited_for_some(whom, whom_count, time))
CALL(Waitany, WAITING, (int count, void *array, int *index, void *status), (count, array, index, status),
     note(count, array), waited(done(*index), time))
CALL(Waitsome, WAITING, (int count, void *array, int *found, int *indices, void *statuses),
     (count, array, found, indices, statuses), note(count, array), waited_for_some(whom, some_done(*found, indices), time))
CALL(Test, WAITING, (void *request, int *flag, void *status), (request, flag, status), note(1, request),
     if (*flag) done(0))
CALL(Testall, WAITING, (int count, void *array, int *flag, void *statuses), (count, array, flag, statuses),
     note(count, array), for (int at = 0; *flag && at < count; at++) done(at))
CALL(Testany, WAITING, (int count, void *array, int *index, int *flag, void *status),
     (count, array, index, flag, status), note(count, array), if (*flag) done(*index))
CALL(Testsome, WAITING, (int count, void *array, int *found, int *indices, void *statuses),
     (count, array, found, indices, statuses), note(count, array), some_done(*found, indices))
CALL(Start, POINT_TO_POINT, (void *request), (request), -1, started(handle_at(request, 0)))
CALL(Startall, POINT_TO_POINT, (int count, void *array), (count, array), -1,
     for (int at = 0; at < count; at++) started(handle_at(array, at)))
CALL(Request_free, WAITING, (void *request), (request), forgotten(request), )
TIMED(Request_get_status, WAITING, 3)
CALL(Probe, WAITING, (int source, int tag, H comm, void *status), (source, tag, comm, status), peer_in(comm, source),
     waited(who, time))
CALL(Mprobe, WAITING, (int source, int tag, H comm, H message, void *status), (source, tag, comm, message, status),
     peer_in(comm, source), waited(who, time))
TIMED(Iprobe, WAITING, 5)
TIMED(Improbe, WAITING, 6)
/* partitioned: counted when it starts */
CALL(Psend_init, POINT_TO_POINT, (void *buf, int parts, int64_t count, H type, int dest, int tag, H comm, H info, void *request),
     (buf, parts, count, type, dest, tag, comm, info, request), peer_in(comm, dest),
     remember_at(request, who, SENDS, comm, bytes_of(count * parts, type)))
CALL(Precv_init, POINT_TO_POINT, (void *buf, int parts, int64_t count, H type, int source, int tag, H comm, H info, void *request),
     (buf, parts, count, type, source, tag, comm, info, request), peer_in(comm, source),
     remember_at(request, who, RECEIVES, comm, 0))
TIMED(Pready, POINT_TO_POINT, 2)
TIMED(Pready_range, POINT_TO_POINT, 3)
TIMED(Pready_list, POINT_TO_POINT, 3)
TIMED(Parrived, WAITING, 3)

TIMED(Barrier, COLLECTIVE, 1)
CALL(Ibarrier, COLLECTIVE, (H comm, void *request), (comm, request), -1, forget_at(request))
CALL(Barrier_init, COLLECTIVE, (H comm, H info, void *request), (comm, info, request), -1, forget_at(request))

/* one-sided: epochs */
TIMED(Win_fence, ONE_SIDED, 2)
TIMED(Win_start, ONE_SIDED, 3)
TIMED(Win_complete, ONE_SIDED, 1)
TIMED(Win_post, ONE_SIDED, 3)
TIMED(Win_wait, ONE_SIDED, 1)
TIMED(Win_test, ONE_SIDED, 2)
CALL(Win_lock, ONE_SIDED, (int lock, int rank, int assert, H win), (lock, rank, assert, win), peer_of_window(win, rank),
     waited(who, time))
CALL(Win_unlock, ONE_SIDED, (int rank, H win), (rank, win), peer_of_window(win, rank), waited(who, time))
TIMED(Win_lock_all, ONE_SIDED, 2)
TIMED(Win_unlock_all, ONE_SIDED, 1)
CALL(Win_flush, ONE_SIDED, (int rank, H win), (rank, win), peer_of_window(win, rank), waited(who, time))
CALL(Win_flush_local, ONE_SIDED, (int rank, H win), (rank, win), peer_of_window(win, rank), waited(who, time))
TIMED(Win_flush_all, ONE_SIDED, 1)
TIMED(Win_flush_local_all, ONE_SIDED, 1)
TIMED(Win_sync, ONE_SIDED, 1)
TIMED(Win_create_dynamic, ONE_SIDED, 3)
TIMED(Win_attach, ONE_SIDED, 3)
TIMED(Win_detach, ONE_SIDED, 2)
CALL(Fetch_and_op, ONE_SIDED, (const void *from, void *result, H type, int rank, intptr_t at, H op, H win),
     (from, result, type, rank, at, op, win), peer_of_window(win, rank), put(who, bytes_of(1, type)); got(who, bytes_of(1, type)))
CALL(Compare_and_swap, ONE_SIDED,
     (const void *from, const void *compared, void *result, H type, int rank, intptr_t at, H win),
     (from, compared, result, type, rank, at, win), peer_of_window(win, rank), put(who, bytes_of(1, type)); got(who, bytes_of(1, type)))

/* what makes a handle free for another object is in mpi_profile.c */
SPECIAL(Comm_free, COMMUNICATORS)
SPECIAL(Comm_disconnect, COMMUNICATORS)
SPECIAL(Type_free, COMMUNICATORS)
SPECIAL(Win_free, ONE_SIDED)
TIMED(Comm_dup, COMMUNICATORS, 2)
TIMED(Comm_dup_with_info, COMMUNICATORS, 3)
CALL(Comm_idup, COMMUNICATORS, (H comm, H made, void *request), (comm, made, request), -1, forget_at(request))
CALL(Comm_idup_with_info, COMMUNICATORS, (H comm, H info, H made, void *request), (comm, info, made, request), -1,
     forget_at(request))
TIMED(Comm_create, COMMUNICATORS, 3)
TIMED(Comm_create_group, COMMUNICATORS, 4)
TIMED(Comm_create_from_group, COMMUNICATORS, 5)
TIMED(Comm_split, COMMUNICATORS, 4)
TIMED(Comm_split_type, COMMUNICATORS, 5)
TIMED(Intercomm_create, COMMUNICATORS, 6)
TIMED(Intercomm_merge, COMMUNICATORS, 3)
TIMED(Cart_create, COMMUNICATORS, 6)
TIMED(Cart_sub, COMMUNICATORS, 3)
TIMED(Graph_create, COMMUNICATORS, 6)
TIMED(Dist_graph_create, COMMUNICATORS, 9)
TIMED(Dist_graph_create_adjacent, COMMUNICATORS, 10)
TIMED(Comm_spawn, COMMUNICATORS, 8)
TIMED(Comm_spawn_multiple, COMMUNICATORS, 9)
TIMED(Comm_accept, COMMUNICATORS, 5)
TIMED(Comm_connect, COMMUNICATORS, 5)
TIMED(Comm_join, COMMUNICATORS, 2)

TIMED(File_open, FILES, 5)
TIMED(File_close, FILES, 1)
TIMED(File_delete, FILES, 2)
TIMED(File_set_size, FILES, 2)
TIMED(File_preallocate, FILES, 2)
TIMED(File_set_view, FILES, 6)
TIMED(File_sync, FILES, 1)
TIMED(File_seek_shared, FILES, 3)
TIMED(File_read_all_end, FILES, 3)
TIMED(File_write_all_end, FILES, 3)
TIMED(File_read_at_all_end, FILES, 3)
TIMED(File_write_at_all_end, FILES, 3)
TIMED(File_read_ordered_end, FILES, 3)
TIMED(File_write_ordered_end, FILES, 3)

#undef EACH
#undef EACH_TIMED
#undef CALL
#undef TIMED
#undef SPECIAL
