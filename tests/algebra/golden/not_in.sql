-- SELECT a, b FROM r WHERE a NOT IN (SELECT a FROM s)

-- @1: sums, key none, changes paired
SELECT
  `members`,
  `present`,
  `_hw_rows`,
  `_hw_present_count`,
  `_hw_old_members`,
  `_hw_old_present`,
  `_hw_old__hw_rows`,
  `_hw_old__hw_present_count`,
  `_hw_file`,
  `_hw_position`,
  `_hw_row`,
  `_hw_is`,
  `_hw_was`
FROM (
  SELECT
    `_hw_rows` AS `members`,
    `_hw_present_count` AS `present`,
    `_hw_rows` AS `_hw_rows`,
    `_hw_present_count` AS `_hw_present_count`,
    `_hw_old_members` AS `_hw_old_members`,
    `_hw_old_present` AS `_hw_old_present`,
    `_hw_old__hw_rows` AS `_hw_old__hw_rows`,
    `_hw_old__hw_present_count` AS `_hw_old__hw_present_count`,
    `_hw_file` AS `_hw_file`,
    `_hw_position` AS `_hw_position`,
    `_hw_row` AS `_hw_row`,
    TRUE AS `_hw_is`,
    NOT `_hw_row` IS NULL AS `_hw_was`
  FROM (
    SELECT
      CAST((
        COALESCE(`_hw_old__hw_rows`, 0) + COALESCE(`_hw_d__hw_rows`, 0)
      ) AS BIGINT) AS `_hw_rows`,
      CAST((
        COALESCE(`_hw_old__hw_present_count`, 0) + COALESCE(`_hw_d__hw_present_count`, 0)
      ) AS BIGINT) AS `_hw_present_count`,
      `_hw_old_members` AS `_hw_old_members`,
      `_hw_old_present` AS `_hw_old_present`,
      `_hw_old__hw_rows` AS `_hw_old__hw_rows`,
      `_hw_old__hw_present_count` AS `_hw_old__hw_present_count`,
      `_hw_file` AS `_hw_file`,
      `_hw_position` AS `_hw_position`,
      `_hw_row` AS `_hw_row`
    FROM (
      SELECT
        `_hw_d__hw_rows`,
        `_hw_d__hw_present_count`,
        `_hw_old_members`,
        `_hw_old_present`,
        `_hw_old__hw_rows`,
        `_hw_old__hw_present_count`,
        `_hw_file`,
        `_hw_position`,
        `_hw_row`
      FROM (
        SELECT
          SUM(`_hw_w`) AS `_hw_d__hw_rows`,
          SUM(CASE WHEN NOT `a_3` IS NULL THEN `_hw_w` ELSE 0 END) AS `_hw_d__hw_present_count`
        FROM (
          SELECT
            `a` AS `a_3`,
            `rowid` AS `s_rowid_2`,
            `_hw_w`
          FROM `s@delta`
        ) AS _t
      ) AS _l
      LEFT JOIN (
        SELECT
          `members` AS `_hw_old_members`,
          `present` AS `_hw_old_present`,
          `_hw_rows` AS `_hw_old__hw_rows`,
          `_hw_present_count` AS `_hw_old__hw_present_count`,
          `_hw_file` AS `_hw_file`,
          `_hw_position` AS `_hw_position`,
          `_hw_row` AS `_hw_row`
        FROM `@1@old`
      ) AS _r
        ON TRUE
    ) AS _t
  ) AS _t
) AS _t
WHERE
  (
    `_hw_is` OR `_hw_was`
  )
  AND (
    NOT (
      (
        `_hw_is` AND `_hw_was`
      )
      AND (
        `_hw_rows` IS NOT DISTINCT FROM `_hw_old__hw_rows`
        AND `_hw_present_count` IS NOT DISTINCT FROM `_hw_old__hw_present_count`
      )
    )
  )

-- @: rows, key _hw_key_1, changes signed
SELECT
  `a` AS `a`,
  `b` AS `b`,
  `_hw_key_1` AS `_hw_key_1`,
  `_hw_file` AS `_hw_file`,
  `_hw_position` AS `_hw_position`,
  `_hw_row` AS `_hw_row`,
  `_hw_w`
FROM (
  SELECT
    `a`,
    `b`,
    `_hw_key_1`,
    `_hw_old__hw_key_1`,
    `_hw_file`,
    `_hw_position`,
    `_hw_row`,
    `_hw_w`
  FROM (
    SELECT
      `a`,
      `b`,
      `_hw_key_1`,
      CAST(SUM(`_hw_w`) AS INT) AS `_hw_w`
    FROM (
      SELECT
        `a` AS `a`,
        `b` AS `b`,
        `r_rowid` AS `_hw_key_1`,
        `_hw_w`
      FROM (
        SELECT
          `a` AS `a`,
          `b` AS `b`,
          `r_rowid`,
          `_hw_w`
        FROM (
          SELECT
            `a`,
            `b`,
            `members`,
            `present`,
            `r_rowid`,
            `_hw_w`
          FROM (
            SELECT
              `a`,
              `b`,
              `members`,
              `present`,
              `r_rowid`,
              `_hw_w`
            FROM (
              SELECT
                `a`,
                `b`,
                `r_rowid`,
                `_hw_w`
              FROM (
                SELECT
                  _l.`a`,
                  _l.`b`,
                  _l.`r_rowid`,
                  _l.`_hw_w`
                FROM (
                  SELECT
                    `a` AS `a`,
                    `b` AS `b`,
                    `rowid` AS `r_rowid`,
                    `_hw_w`
                  FROM `r@delta`
                ) AS _l
                LEFT ANTI JOIN (
                  SELECT
                    _l.`a_2`,
                    _l.`s_rowid`
                  FROM (
                    SELECT
                      `a` AS `a_2`,
                      `rowid` AS `s_rowid`
                    FROM `s@old`
                  ) AS _l
                  LEFT SEMI JOIN (
                    SELECT
                      `_hw_key_0`
                    FROM (
                      SELECT
                        `a` AS `_hw_key_0`,
                        `r_rowid`,
                        `_hw_w`
                      FROM (
                        SELECT
                          `a` AS `a`,
                          `b` AS `b`,
                          `rowid` AS `r_rowid`,
                          `_hw_w`
                        FROM `r@delta`
                      ) AS _t
                    ) AS _t
                    GROUP BY
                      `_hw_key_0`
                  ) AS _r
                    ON `a_2` IS NOT DISTINCT FROM `_hw_key_0`
                ) AS _r
                  ON `a` = `a_2`
              ) AS _t
              UNION ALL
              SELECT
                `a`,
                `b`,
                `r_rowid`,
                `_hw_w`
              FROM (
                SELECT
                  `a`,
                  `b`,
                  `r_rowid`,
                  CAST(1 AS INT) AS `_hw_w`
                FROM (
                  SELECT
                    _l.`a`,
                    _l.`b`,
                    _l.`r_rowid`
                  FROM (
                    SELECT
                      _l.`a`,
                      _l.`b`,
                      _l.`r_rowid`
                    FROM (
                      SELECT
                        `a` AS `a`,
                        `b` AS `b`,
                        `rowid` AS `r_rowid`
                      FROM `r@new`
                    ) AS _l
                    LEFT SEMI JOIN (
                      SELECT
                        `_hw_key_0`
                      FROM (
                        SELECT
                          `a_2` AS `_hw_key_0`,
                          `s_rowid`,
                          `_hw_w`
                        FROM (
                          SELECT
                            `a` AS `a_2`,
                            `rowid` AS `s_rowid`,
                            `_hw_w`
                          FROM `s@delta`
                        ) AS _t
                      ) AS _t
                      GROUP BY
                        `_hw_key_0`
                    ) AS _r
                      ON `a` IS NOT DISTINCT FROM `_hw_key_0`
                  ) AS _l
                  LEFT ANTI JOIN (
                    SELECT
                      _l.`a_2`,
                      _l.`s_rowid`
                    FROM (
                      SELECT
                        `a` AS `a_2`,
                        `rowid` AS `s_rowid`
                      FROM `s@new`
                    ) AS _l
                    LEFT SEMI JOIN (
                      SELECT
                        `_hw_key_0`
                      FROM (
                        SELECT
                          `a_2` AS `_hw_key_0`,
                          `s_rowid`,
                          `_hw_w`
                        FROM (
                          SELECT
                            `a` AS `a_2`,
                            `rowid` AS `s_rowid`,
                            `_hw_w`
                          FROM `s@delta`
                        ) AS _t
                      ) AS _t
                      GROUP BY
                        `_hw_key_0`
                    ) AS _r
                      ON `a_2` IS NOT DISTINCT FROM `_hw_key_0`
                  ) AS _r
                    ON `a` = `a_2`
                ) AS _t
              ) AS _t
              UNION ALL
              SELECT
                `a`,
                `b`,
                `r_rowid`,
                `_hw_w`
              FROM (
                SELECT
                  `a`,
                  `b`,
                  `r_rowid`,
                  CAST(-1 AS INT) AS `_hw_w`
                FROM (
                  SELECT
                    _l.`a`,
                    _l.`b`,
                    _l.`r_rowid`
                  FROM (
                    SELECT
                      _l.`a`,
                      _l.`b`,
                      _l.`r_rowid`
                    FROM (
                      SELECT
                        `a` AS `a`,
                        `b` AS `b`,
                        `rowid` AS `r_rowid`
                      FROM `r@new`
                    ) AS _l
                    LEFT SEMI JOIN (
                      SELECT
                        `_hw_key_0`
                      FROM (
                        SELECT
                          `a_2` AS `_hw_key_0`,
                          `s_rowid`,
                          `_hw_w`
                        FROM (
                          SELECT
                            `a` AS `a_2`,
                            `rowid` AS `s_rowid`,
                            `_hw_w`
                          FROM `s@delta`
                        ) AS _t
                      ) AS _t
                      GROUP BY
                        `_hw_key_0`
                    ) AS _r
                      ON `a` IS NOT DISTINCT FROM `_hw_key_0`
                  ) AS _l
                  LEFT ANTI JOIN (
                    SELECT
                      _l.`a_2`,
                      _l.`s_rowid`
                    FROM (
                      SELECT
                        `a` AS `a_2`,
                        `rowid` AS `s_rowid`
                      FROM `s@old`
                    ) AS _l
                    LEFT SEMI JOIN (
                      SELECT
                        `_hw_key_0`
                      FROM (
                        SELECT
                          `a_2` AS `_hw_key_0`,
                          `s_rowid`,
                          `_hw_w`
                        FROM (
                          SELECT
                            `a` AS `a_2`,
                            `rowid` AS `s_rowid`,
                            `_hw_w`
                          FROM `s@delta`
                        ) AS _t
                      ) AS _t
                      GROUP BY
                        `_hw_key_0`
                    ) AS _r
                      ON `a_2` IS NOT DISTINCT FROM `_hw_key_0`
                  ) AS _r
                    ON `a` = `a_2`
                ) AS _t
              ) AS _t
            ) AS _l
            INNER JOIN (
              SELECT
                `members` AS `members`,
                `present` AS `present`
              FROM `@1@old`
            ) AS _r
              ON `members` = 0 OR (
                NOT `a` IS NULL AND `present` = `members`
              )
          ) AS _t
          UNION ALL
          SELECT
            `a`,
            `b`,
            `members`,
            `present`,
            `r_rowid`,
            `_hw_w`
          FROM (
            SELECT
              `members`,
              `present`,
              `a`,
              `b`,
              `r_rowid`,
              `_hw_w`
            FROM (
              SELECT
                `members` AS `members`,
                `present` AS `present`,
                `_hw_w`
              FROM `@1@delta`
            ) AS _l
            INNER JOIN (
              SELECT
                _l.`a`,
                _l.`b`,
                _l.`r_rowid`
              FROM (
                SELECT
                  `a` AS `a`,
                  `b` AS `b`,
                  `rowid` AS `r_rowid`
                FROM `r@new`
              ) AS _l
              LEFT ANTI JOIN (
                SELECT
                  `a` AS `a_2`,
                  `rowid` AS `s_rowid`
                FROM `s@new`
              ) AS _r
                ON `a` = `a_2`
            ) AS _r
              ON `members` = 0 OR (
                NOT `a` IS NULL AND `present` = `members`
              )
          ) AS _t
        ) AS _t
      ) AS _t
    ) AS _t
    GROUP BY
      `a`,
      `b`,
      `_hw_key_1`
    HAVING
      SUM(`_hw_w`) <> 0
  ) AS _l
  LEFT JOIN (
    SELECT
      `_hw_key_1` AS `_hw_old__hw_key_1`,
      `_hw_file` AS `_hw_file`,
      `_hw_position` AS `_hw_position`,
      `_hw_row` AS `_hw_row`
    FROM `@@old`
  ) AS _r
    ON `_hw_key_1` IS NOT DISTINCT FROM `_hw_old__hw_key_1`
) AS _t
